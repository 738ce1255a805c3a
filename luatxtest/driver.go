package luatxtest

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/trigger"
)

// DriverTarget is a Driver under test and its source.
type DriverTarget struct {
	// Driver is the Driver to test, not connected yet. TestDriver closes it.
	Driver trigger.Driver
	// Send adds a delivery to the source that contains the text in its Data or in one of its Fields. Required.
	Send func(ctx context.Context, text string) error
	// Open returns the number of deliveries that the source has not seen acknowledged. Nil skips that test.
	Open func(ctx context.Context) (int, error)
	// Patience is how long a delivery may take to arrive, and to become open or done. Defaults to 10 seconds.
	Patience time.Duration
}

func (d DriverTarget) patience() time.Duration { return cmp.Or(d.Patience, patience) }

const (
	// wait is the wait that the checks pass to NextDelivery.
	wait = 100 * time.Millisecond
	// idle is the time limit of NextDelivery if nothing arrives, because retries and a stopping Runtime wait for it.
	idle = 5 * time.Second
)

// driverCheck tests one property that a Runtime relies on, with a connected Driver.
type driverCheck struct {
	name string
	run  func(t testing.TB, d DriverTarget)
}

// TestDriver checks that a Driver has the properties that a trigger.Runtime relies on. A sent message is delivered, with an
// identity unless it is delivered only once. A wait ends without a result or with its context. An acknowledgement may be
// repeated, also after a Reconnect. An acknowledged delivery is not repeated, and any other stays in the source. Dead letters are
// acknowledged. Close ends the Driver. TestDriver calls open for a new target for each check.
func TestDriver(t *testing.T, open func(t testing.TB) DriverTarget) {
	t.Helper()
	for _, check := range driverChecks() {
		t.Run(check.name, func(t *testing.T) { check.on(t, open) })
	}
}

// on connects a new target, runs the check, and closes the target.
func (c driverCheck) on(t testing.TB, open func(t testing.TB) DriverTarget) {
	t.Helper()
	d := open(t)
	if d.Driver == nil || d.Send == nil {
		t.Fatal("luatxtest: DriverTarget.Driver and Send are required")
	}
	defer func() {
		if err := d.Driver.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	d.connect(t)
	c.run(t, d)
}

func driverChecks() []driverCheck {
	return []driverCheck{
		{"nothing comes", nothingComes},
		{"a context that ends", waitingEnds},
		{"what is sent is delivered", delivered},
		{"an acknowledgement", acknowledged},
		{"an acknowledgement after Reconnect", reconnected},
		{"what is not acknowledged", unacknowledged},
		{"a dead letter", deadLetter},
	}
}

func (d DriverTarget) connect(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d.patience())
	defer cancel()
	if err := d.Driver.Reconnect(ctx); err != nil {
		t.Fatalf("Reconnect: %v", err)
	}
}

func (d DriverTarget) send(t testing.TB, texts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d.patience())
	defer cancel()
	for _, text := range texts {
		if err := d.Send(ctx, text); err != nil {
			t.Fatalf("luatxtest: DriverTarget.Send: %v", err)
		}
	}
}

// receive waits for n deliveries, as a Runtime does.
func (d DriverTarget) receive(t testing.TB, n int) []*trigger.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d.patience())
	defer cancel()
	var all []*trigger.Delivery
	for len(all) < n {
		got, err := d.Driver.NextDelivery(ctx, wait)
		switch {
		case ctx.Err() != nil:
			t.Fatalf("%d of %d deliveries that were sent have not come within %v", n-len(all), n, d.patience())
		case err != nil:
			t.Fatalf("NextDelivery: %v", err)
		case got != nil:
			all = append(all, got)
		}
	}
	return all
}

// repeatable sends a text and receives its delivery. It skips the check if the source delivers it only once.
func (d DriverTarget) repeatable(t testing.TB, text string) *trigger.Delivery {
	t.Helper()
	d.send(t, text)
	got := d.receive(t, 1)[0]
	if got.Once {
		t.Skip("the subscriber delivers each message once, and does not acknowledge or redeliver it")
	}
	return got
}

// quiet fails the check unless NextDelivery returns in time without a result.
func (d DriverTarget) quiet(t testing.TB, why string) {
	t.Helper()
	if err := d.waits(t, t.Context(), idle, why); err != nil {
		t.Errorf("NextDelivery: %v, want neither a delivery nor an error where nothing comes", err)
	}
}

// holds reports whether a delivery contains a text.
func holds(d *trigger.Delivery, text string) bool {
	if strings.Contains(string(d.Data), text) {
		return true
	}
	for _, value := range d.Fields {
		if strings.Contains(value, text) {
			return true
		}
	}
	return false
}

// waits calls NextDelivery, and fails if it takes too long or returns a delivery.
func (d DriverTarget) waits(t testing.TB, ctx context.Context, bound time.Duration, why string) error { //nolint:revive // t comes first here
	t.Helper()
	type answer struct {
		got *trigger.Delivery
		err error
	}
	done := make(chan answer, 1)
	go func() {
		got, err := d.Driver.NextDelivery(ctx, wait)
		done <- answer{got, err}
	}()
	select {
	case a := <-done:
		if a.got != nil {
			t.Errorf("NextDelivery gives %+v: %s", a.got, why)
		}
		return a.err
	case <-time.After(bound):
		t.Fatalf("NextDelivery has not returned after %v: %s", bound, why)
		return nil
	}
}

func nothingComes(t testing.TB, d DriverTarget) {
	t.Helper()
	d.quiet(t, "nothing was sent")
}

func waitingEnds(t testing.TB, d DriverTarget) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = d.waits(t, ctx, grace, "its context has ended")
}

func delivered(t testing.TB, d DriverTarget) {
	t.Helper()
	const n = 5
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprintf("payload-%d", i))
	}
	d.send(t, texts...)
	all, seen := d.receive(t, n), make(map[string]bool)
	for _, text := range texts {
		found := 0
		for _, got := range all {
			if holds(got, text) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%q was delivered %d times, want once: neither Data nor Fields may be changed", text, found)
		}
	}
	for _, got := range all {
		key := got.Stream + "\x00" + got.ID
		switch {
		case got.ID == "" && !got.Once:
			t.Errorf("%+v has no ID, and is not said to come Once: a redelivery could not be told from another", got)
		case got.ID != "" && seen[key]:
			t.Errorf("two deliveries in flight have the id %q of %q", got.ID, got.Stream)
		case got.Time.IsZero():
			t.Errorf("%+v has no Time", got)
		}
		seen[key] = true
	}
}

// open waits until the given number of deliveries is open.
func (d DriverTarget) open(t testing.TB, want int, when string) {
	t.Helper()
	if d.Open == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), d.patience())
	defer cancel()
	for {
		n, err := d.Open(ctx)
		if n == want && err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Errorf("%d deliveries are open %s, want %d (%v)", n, when, want, err)
			return
		}
		breathe(ctx)
	}
}

// settle acknowledges a delivery and releases it, as a Runtime does.
func (d DriverTarget) settle(t testing.TB, got *trigger.Delivery, ack func(context.Context) error, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d.patience())
	defer cancel()
	if err := ack(ctx); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if got.Done != nil {
		got.Done(true)
	}
}

func acknowledged(t testing.TB, d DriverTarget) {
	t.Helper()
	got := d.repeatable(t, "acked")
	d.open(t, 1, "before the acknowledgement")
	d.settle(t, got, func(ctx context.Context) error {
		if err := d.Driver.Ack(ctx, got); err != nil {
			return err
		}
		if err := d.Driver.Ack(ctx, got); err != nil { // as after a lost reply
			return fmt.Errorf("a second time: %w", err)
		}
		return nil
	}, "Ack")
	d.open(t, 0, "after the acknowledgement")
	d.connect(t)
	d.quiet(t, "every message has been acknowledged")
}

func reconnected(t testing.TB, d DriverTarget) {
	t.Helper()
	got := d.repeatable(t, "in flight")
	d.connect(t)
	d.settle(t, got, func(ctx context.Context) error { return d.Driver.Ack(ctx, got) }, "Ack after Reconnect, of what was delivered before")
	d.open(t, 0, "after the acknowledgement")
	d.send(t, "the next")
	if next := d.receive(t, 1)[0]; !holds(next, "the next") {
		t.Errorf("after Reconnect %+v is delivered, want what was sent then", next)
	}
}

func unacknowledged(t testing.TB, d DriverTarget) {
	t.Helper()
	got := d.repeatable(t, "unacknowledged")
	if got.Done != nil {
		got.Done(false)
	}
	d.connect(t)
	d.open(t, 1, "after a delivery that nobody has acknowledged: it would be lost")
}

func deadLetter(t testing.TB, d DriverTarget) {
	t.Helper()
	set, ok := d.Driver.(trigger.DeadLetterer)
	if !ok {
		t.Skip("the Driver is no trigger.DeadLetterer")
	}
	d.send(t, "dead")
	got := d.receive(t, 1)[0]
	d.settle(t, got, func(ctx context.Context) error { return set.DeadLetter(ctx, got, "never succeeds") }, "DeadLetter")
	if !got.Once {
		d.open(t, 0, "after it became a dead letter")
	}
	d.connect(t)
	d.quiet(t, "every message has become a dead letter")
}
