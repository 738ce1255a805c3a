package luatxtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// PublisherTarget is a Publisher under test and its destination.
type PublisherTarget struct {
	// Publisher is the Publisher to test.
	Publisher relay.Publisher
	// Received returns the events that have arrived so far, in any order, with ids, sources, types and data as sent. Required.
	Received func() []*message.RawMessage
	// Break makes the destination unreachable until mend is called. Nil skips the test of outages.
	Break func() (mend func())
	// Refuse makes the destination reject the event with an id permanently. Nil skips the test of rejections.
	Refuse func(id string)
	// Patience is how long events may take to arrive, and an outage to end. Defaults to 10 seconds.
	Patience time.Duration
}

// patience is the default time limit. grace is the limit for steps that should end at once.
const (
	patience = 10 * time.Second
	grace    = 3 * time.Second
)

func (p PublisherTarget) patience() time.Duration { return cmp.Or(p.Patience, patience) }

// publisherCheck tests one property that a relay relies on.
type publisherCheck struct {
	name string
	run  func(t testing.TB, p PublisherTarget)
}

// TestPublisher checks that a Publisher has the properties that a relay relies on. An event with a nil result has arrived
// unchanged, and each event has a result. An outage is Unavailable and ends. A rejection concerns one event and is not an
// outage. Several batches may be published at the same time. Publish returns soon after its context has ended, and changes no
// event. A Scoped Publisher always returns the scope of an event. TestPublisher calls open for a new target for each check.
func TestPublisher(t *testing.T, open func(t testing.TB) PublisherTarget) {
	t.Helper()
	for _, check := range publisherChecks() {
		t.Run(check.name, func(t *testing.T) { check.run(t, open(t)) })
	}
}

func publisherChecks() []publisherCheck {
	return []publisherCheck{
		{"events arrive unharmed", arriveUnharmed},
		{"batches side by side", sideBySide},
		{"events stay as they are", stayAsTheyAre},
		{"a context that has ended", endedContext},
		{"an outage", outage},
		{"a refused event", refusal},
		{"the scope", scope},
	}
}

// specimens returns n events of different kinds with ids that begin with prefix.
func specimens(prefix string, n int) []*message.RawMessage {
	data := [][]byte{
		[]byte(`{"total":5}`), []byte(`"text"`), nil, {0, 1, 0xff, '\r', '\n'}, []byte("grüße, 世界"), bytes.Repeat([]byte("x"), 64<<10),
	}
	kinds := []string{"application/json", "application/json", "", "application/octet-stream", "text/plain; charset=utf-8", "text/plain"}
	events := make([]*message.RawMessage, n)
	for i := range events {
		attributes := message.Attributes{
			message.AttrSpecVersion: "1.0", message.AttrID: fmt.Sprintf("%s-%d", prefix, i), message.AttrSource: "/luatxtest/ä%20b", message.AttrType: "specimen.made",
			message.AttrSubject: fmt.Sprintf("order %d, „quoted“", i%3),
		}
		if kind := kinds[i%len(kinds)]; kind != "" {
			attributes[message.AttrDataContentType] = kind
		}
		events[i] = message.NewRaw(bytes.Clone(data[i%len(data)]), attributes, nil)
	}
	return events
}

// publish passes a batch to the Publisher, as a relay does, and returns a result for each event.
func (p PublisherTarget) publish(t testing.TB, events []*message.RawMessage) []error {
	t.Helper()
	if p.Publisher == nil || p.Received == nil {
		t.Fatal("luatxtest: PublisherTarget.Publisher and Received are required")
	}
	ctx, cancel := context.WithTimeout(t.Context(), p.patience())
	defer cancel()
	return answers(t, p.Publisher.Publish(ctx, events), len(events))
}

func answers(t testing.TB, errs []error, events int) []error {
	t.Helper()
	switch len(errs) {
	case events:
		return errs
	case 0:
		return make([]error, events)
	}
	t.Fatalf("%d answers to %d events: there must be one for each, at its index, or none at all where all were sent", len(errs), events)
	return nil
}

// arrived waits until events have arrived, and checks that they are unchanged.
func (p PublisherTarget) arrived(t testing.TB, events []*message.RawMessage) {
	t.Helper()
	var missing []string
	for deadline := time.Now().Add(p.patience()); ; {
		got := make(map[string]*message.RawMessage)
		for _, e := range p.Received() {
			got[e.ID()] = e
		}
		missing = missing[:0]
		for _, e := range events {
			if got[e.ID()] == nil {
				missing = append(missing, e.ID())
				continue
			}
			if problem := differs(e, got[e.ID()]); problem != "" {
				t.Errorf("event %s: %s", e.ID(), problem)
			}
		}
		if len(missing) == 0 || t.Failed() {
			return
		}
		if time.Now().After(deadline) {
			break
		}
		breathe(t.Context())
	}
	t.Errorf("%d of %d events were answered nil, and have not arrived: %s", len(missing), len(events), strings.Join(missing[:min(10, len(missing))], ", "))
}

// breathe waits briefly.
func breathe(ctx context.Context) {
	timer := time.NewTimer(2 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func differs(sent, got *message.RawMessage) string {
	for name, of := range map[string]func(message.Attributes) string{
		"source": message.Attributes.Source, "type": message.Attributes.Type, "subject": message.Attributes.Subject,
	} {
		if a, b := of(sent.Attributes), of(got.Attributes); a != b {
			return fmt.Sprintf("%s %q has arrived as %q", name, a, b)
		}
	}
	if !bytes.Equal(sent.Data, got.Data) {
		return fmt.Sprintf("its data %.60q has arrived as %.60q", sent.Data, got.Data)
	}
	return ""
}

// allSent reports results that are errors.
func allSent(t testing.TB, events []*message.RawMessage, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Errorf("event %s was not sent: %v", events[i].ID(), err)
		}
	}
}

func arriveUnharmed(t testing.TB, p PublisherTarget) {
	t.Helper()
	for _, n := range []int{1, 2, 100} {
		events := specimens(fmt.Sprint("of", n), n)
		allSent(t, events, p.publish(t, events))
		p.arrived(t, events)
	}
}

func sideBySide(t testing.TB, p PublisherTarget) {
	t.Helper()
	const batches, size = 8, 25
	var group sync.WaitGroup
	var all []*message.RawMessage
	replies := make([][]error, batches)
	for b := range batches {
		events := specimens(fmt.Sprint("side", b), size)
		all = append(all, events...)
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), p.patience())
			defer cancel()
			replies[b] = p.Publisher.Publish(ctx, events)
		})
	}
	group.Wait()
	for b, errs := range replies {
		allSent(t, all[b*size:(b+1)*size], answers(t, errs, size))
	}
	p.arrived(t, all)
}

func stayAsTheyAre(t testing.TB, p PublisherTarget) {
	t.Helper()
	events, before := specimens("stay", 12), specimens("stay", 12)
	p.publish(t, events)
	for i, e := range events {
		if !maps.Equal(e.Attributes, before[i].Attributes) || !bytes.Equal(e.Data, before[i].Data) {
			t.Errorf("event %s was changed: a relay may try it again: %v %.60q", before[i].ID(), e.Attributes, e.Data)
		}
	}
}

func endedContext(t testing.TB, p PublisherTarget) {
	t.Helper()
	events := specimens("ended", 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan []error, 1)
	go func() { done <- p.Publisher.Publish(ctx, events) }()
	select {
	case errs := <-done:
		var sent []*message.RawMessage
		for i, err := range answers(t, errs, len(events)) {
			if err == nil {
				sent = append(sent, events[i])
			}
			if message.IsPermanent(err) {
				t.Errorf("event %s would be parked because the relay was out of time: %v", events[i].ID(), err)
			}
		}
		p.arrived(t, sent)
	case <-time.After(grace):
		t.Fatalf("Publish has not returned %v after its context has ended: the lease runs out meanwhile", grace)
	}
}

func outage(t testing.TB, p PublisherTarget) {
	t.Helper()
	if p.Break == nil {
		t.Skip("PublisherTarget.Break is nil: outages are not tested")
	}
	before := specimens("before", 2)
	allSent(t, before, p.publish(t, before))
	mend := p.Break()
	down := specimens("down", 3)
	for i, err := range p.publish(t, down) {
		switch {
		case err == nil:
			t.Errorf("event %s was answered nil while its destination cannot be reached: it would be lost", down[i].ID())
		case message.IsPermanent(err):
			t.Errorf("event %s would be parked because of an outage: %v", down[i].ID(), err)
		case !errors.Is(err, relay.ErrUnavailable) && !errors.Is(err, relay.ErrLater):
			t.Errorf("event %s would lose an attempt to an outage: answer relay.Unavailable(err), not %v", down[i].ID(), err)
		}
	}
	mend()
	var errs []error
	for deadline := time.Now().Add(p.patience()); ; breathe(t.Context()) {
		if errs = p.publish(t, down); !anyOf(errs) || time.Now().After(deadline) {
			break
		}
	}
	allSent(t, down, errs)
	p.arrived(t, append(before, down...))
}

func anyOf(errs []error) bool {
	for _, err := range errs {
		if err != nil {
			return true
		}
	}
	return false
}

func refusal(t testing.TB, p PublisherTarget) {
	t.Helper()
	if p.Refuse == nil {
		t.Skip("PublisherTarget.Refuse is nil: refusals are not tested")
	}
	events := specimens("refuse", 5)
	p.Refuse(events[2].ID())
	errs := p.publish(t, events)
	var others []*message.RawMessage
	for i, err := range errs {
		switch {
		case i != 2 && err == nil:
			others = append(others, events[i])
		case i != 2:
			t.Errorf("event %s was not sent because another one was refused: %v", events[i].ID(), err)
		case err == nil:
			t.Errorf("event %s was refused, and answered nil: it would be lost", events[i].ID())
		case errors.Is(err, relay.ErrUnavailable):
			t.Errorf("event %s was refused, and the answer is Unavailable: the relay would pause for it, and try it for ever: %v", events[i].ID(), err)
		}
	}
	p.arrived(t, others)
}

func scope(t testing.TB, p PublisherTarget) {
	t.Helper()
	scoped, ok := p.Publisher.(relay.Scoped)
	if !ok {
		t.Skip("the Publisher is not relay.Scoped")
	}
	odd := append(specimens("scope", 6), message.NewRaw(nil, message.Attributes{}, nil), message.NewRaw(nil, nil, nil))
	for _, e := range odd {
		func() {
			defer func() {
				if v := recover(); v != nil {
					t.Errorf("Scope panics for an event with attributes %v: %v", e.Attributes, v)
				}
			}()
			if a, b := scoped.Scope(e), scoped.Scope(e); a != b {
				t.Errorf("the scope of one event is %q, then %q: an outage of it would never end", a, b)
			}
		}()
	}
}
