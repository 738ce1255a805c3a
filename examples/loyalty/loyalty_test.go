package loyalty_test

import (
	"context"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/examples/loyalty"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// process is the service in this process, on a Redis for the test.
type process struct {
	*luatxtest.Env
	router *message.Router
}

func start(t *testing.T, env *luatxtest.Env) process {
	t.Helper()
	router, err := loyalty.New(env.Transactor, env.Client, env.Now)
	if err != nil {
		t.Fatal(err)
	}
	return process{env, router}
}

func newEnv(t *testing.T) *luatxtest.Env {
	t.Helper()
	return luatxtest.New(t, func(c *luatxtest.Config) { c.Transactor.Keyspace = luatx.Partitions(4) })
}

// deliver delivers the same purchase to the service, like a broker.
func (p process) deliver(pence int) error {
	_, err := p.router.Process(p.Context(), message.New(loyalty.Purchase{Customer: "ada", Pence: pence}, message.Attributes{
		"id": "purchase-1", "source": "/shop", "type": "purchase", "subject": "ada",
	}, nil))
	return err
}

// requirePoints checks ada's points, and that the outbox contains the events of one purchase.
func (p process) requirePoints(t *testing.T, want int) {
	t.Helper()
	key, err := p.Keyspace().Key("ada", "points")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Client.Get(p.Context(), key).Int(); got != want {
		t.Errorf("ada has %d points, want %d: %v", got, want, err)
	}
	luatxtest.RequireEmitted(t, p.Transactor,
		luatxtest.Want{Type: "points.added", Data: loyalty.Points{Customer: "ada", Points: want}}, luatxtest.Want{Type: "points.reminder"})
	if all := luatxtest.Emitted(t, p.Transactor); len(all) != 2 {
		t.Errorf("%d events, want 2", len(all))
	}
}

func TestPurchaseEarnsPoints(t *testing.T) {
	t.Parallel()
	p := start(t, newEnv(t))
	for range 3 { // a broker delivers at least once
		if err := p.deliver(1250); err != nil {
			t.Error(err)
		}
	}
	p.requirePoints(t, 12)
}

func TestSmallPurchaseIsRejected(t *testing.T) {
	t.Parallel()
	p := start(t, newEnv(t))
	if err := p.deliver(50); !message.IsPermanent(err) {
		t.Errorf("%v is not permanent: it would be delivered for ever", err)
	}
	luatxtest.RequireNothingEmitted(t, p.Transactor)
}

// TestPurchaseCountsOnceDespiteACrash crashes the process before or after its commit. The broker delivers again to the next
// process.
func TestPurchaseCountsOnceDespiteACrash(t *testing.T) {
	t.Parallel()
	for _, point := range []luatxtest.Point{luatxtest.BeforeCommit, luatxtest.AfterCommit} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			p := start(t, newEnv(t))
			p.Crash(point)
			if err := p.deliver(1250); err == nil {
				t.Error("it lives")
			}
			p = start(t, p.Restart())
			if err := p.deliver(1250); err != nil {
				t.Error(err)
			}
			p.requirePoints(t, 12)
		})
	}
}

// TestPurchaseCountsOnceDespiteNetworkFaults disturbs the commit. The process survives and resolves the outcome itself.
func TestPurchaseCountsOnceDespiteNetworkFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []luatxtest.Fault{luatxtest.LoseRequest, luatxtest.LoseReply, luatxtest.Repeat} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			p := start(t, newEnv(t))
			p.Disturb(fault)
			if err := p.deliver(1250); err != nil {
				t.Error(err)
			}
			p.requirePoints(t, 12)
		})
	}
}

// TestReminderIsSentWhenItIsDue moves the clock of Redis. Relays follow it; only their intervals use the time of the process.
func TestReminderIsSentWhenItIsDue(t *testing.T) {
	t.Parallel()
	p := start(t, newEnv(t))
	sent, settled := make(chan string, 2), make(chan relay.Settled, 2)
	events, err := relay.New(p.Transactor, relay.Func(func(_ context.Context, event *message.RawMessage) error {
		sent <- event.Type()
		return nil
	}, relay.FuncConfig{}), relay.Config{
		SweepInterval: 10 * time.Millisecond,
		Observer:      relay.Observer{Settled: func(_ context.Context, s relay.Settled) { settled <- s }},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(p.Context())
	done := make(chan error, 1)
	go func() { done <- events.Run(ctx) }()
	if err := p.deliver(1250); err != nil {
		t.Fatal(err)
	}
	if kind := <-sent; kind != "points.added" {
		t.Errorf("%s comes first", kind)
	}
	<-settled // otherwise the month below ends its lease, and it is sent again
	p.Advance(loyalty.RemindAfter - time.Minute)
	luatxtest.RequireEmitted(t, p.Transactor, luatxtest.Want{Type: "points.reminder"}) // it waits
	p.Advance(time.Minute)
	if kind := <-sent; kind != "points.reminder" {
		t.Errorf("%s comes second", kind)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
