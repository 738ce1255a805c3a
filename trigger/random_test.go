package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

const (
	sequences  = 1000
	troubled   = 20 * time.Second // duration of the faults
	calmedDown = 15 * time.Second // time for the remaining work: several times the longest backoff
)

// seenLines counts the executed lines of the table.
type seenLines struct {
	mu   sync.Mutex
	seen map[transition]int
}

func (s *seenLines) note(from State, on stateEvent, to State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[transition]int{}
	}
	s.seen[transition{from: from, on: on, to: to}]++
}

// TestTriggerSurvivesRandomFaults runs a thousand seeds. No trigger may be stuck or leak (the bubble would not end), no entry
// may be lost or run again after a success, and every line of the table must be used.
func TestTriggerSurvivesRandomFaults(t *testing.T) {
	t.Parallel()
	lines := &seenLines{}
	for seed := range uint64(sequences) {
		synctest.Test(t, func(t *testing.T) { randomSequence(t, seed, lines) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, line := range transitions {
		if lines.seen[transition{from: line.from, on: line.on, to: line.to}] == 0 {
			t.Errorf("%s, %s was never run", line.from, line.on)
		}
	}
}

// randomRun is one sequence.
type randomRun struct {
	t     *testing.T
	rng   *rand.Rand
	calm  atomic.Bool
	fake  *fakeDriver
	limit int
	now   atomic.Int32

	mu   sync.Mutex
	done map[string]int // entries whose function has succeeded
}

func randomSequence(t *testing.T, seed uint64, lines *seenLines) {
	t.Helper()
	x := &randomRun{t: t, rng: newRand(seed), done: map[string]int{}}
	x.fake = newFake(t, 10+x.rng.IntN(20))
	x.fake.next = sometimes(x.rng, &x.calm, x.rng.Float64()/2)
	x.fake.ack = sometimes(x.rng, &x.calm, x.rng.Float64()/2)
	x.fake.dead = sometimes(x.rng, &x.calm, x.rng.Float64()/2)
	x.fake.connect = sometimes(x.rng, &x.calm, x.rng.Float64()/4)
	if x.limit = 1 + x.rng.IntN(4); x.limit == 1 { // entries in flight without a running function wait for their ack
		x.fake.again = func() bool { return x.rng.Float64() < 0.3 }
	}
	r := New(Config{
		Function: "f", Run: x.function, Driver: x.fake, Concurrency: x.limit, MaxDeliveries: x.rng.IntN(4), Ordered: x.limit == 1 && seed%2 == 0,
		Retry:           Retry{Entry: message.Backoff{Max: 5 * time.Second}},
		ShutdownTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	r.board.watch = lines.note
	ctx, cancel := context.WithCancel(t.Context())
	if seed%50 == 0 { // the context ends during the start
		cancel()
		x.fake.connect = nil
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	pass(troubled)
	if seed%5 == 0 { // the context ends during the faults
		if seed%2 == 0 { // canceled between two attempts to connect
			cut := sometimes(x.rng, &x.calm, 1)
			x.fake.set(cut, cut, x.fake.ack)
			pass(calmedDown)
		}
		cancel()
	} else {
		x.calm.Store(true)
		pass(calmedDown)
	}
	x.judge(r, ctx.Err() == nil)
	cancel()
	err := <-ended
	var wrong *OptionError
	if state := r.Health().State; err == nil && state != Stopped || err != nil && (state != BuildFailed || !errors.As(err, &wrong)) {
		t.Errorf("state %s, error %v", state, err)
	}
	if n := r.Stats().InFlight; n != 0 {
		t.Errorf("%d in flight", n)
	}
	if n := x.fake.held(); n != 0 {
		t.Errorf("%d deliveries were never let go", n)
	}
	if x.fake.closed.Load() != 1 {
		t.Error("the driver is not closed")
	}
}

// function succeeds, fails, fails permanently, hangs, panics, or loses its entry.
func (x *randomRun) function(ctx context.Context, msg *message.RawMessage) error {
	if n := x.now.Add(1); int(n) > x.limit {
		x.t.Errorf("%d functions at once, want at most %d", n, x.limit)
	}
	defer x.now.Add(-1)
	x.mu.Lock()
	ran := x.done[msg.ID()]
	x.mu.Unlock()
	if ran > 0 {
		x.t.Errorf("entry %s runs again", msg.ID())
	}
	what := x.rng.IntN(20)
	if x.calm.Load() {
		what = 19
	}
	switch what {
	case 0:
		panic("what is this")
	case 1:
		return message.Permanent(errFake)
	case 2:
		return message.RetryAfter(errFake, time.Duration(x.rng.IntN(2000))*time.Millisecond)
	case 3:
		msg.Release()
		return fmt.Errorf("fenced: %w", errFake)
	case 4:
		if !sleep.For(ctx, time.Duration(x.rng.IntN(5000))*time.Millisecond) {
			return ctx.Err()
		}
	case 5, 6, 7:
		return errFake
	case 8: // as a commit does
		x.succeeded(msg.ID())
		_ = x.fake.Ack(context.Background(), &Delivery{ID: msg.ID()})
		if x.fake.look(msg.ID()).acked {
			msg.Acknowledged()
		}
		return nil
	}
	x.succeeded(msg.ID())
	return nil
}

func (x *randomRun) succeeded(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done[id]++
}

// judge checks that acked entries have succeeded. If the trigger had enough time, all entries must be settled, and the trigger
// receives.
func (x *randomRun) judge(r *Runtime, complete bool) {
	x.t.Helper()
	x.fake.mu.Lock()
	defer x.fake.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	health := r.Health()
	if health.State.Final() {
		return // it could not start, or it has ended
	}
	for _, e := range x.fake.entries {
		if e.acked && x.done[e.id] == 0 {
			x.t.Errorf("entry %s is acked and has not succeeded", e.id)
		}
		if complete && !e.acked && e.dead == "" {
			x.t.Errorf("entry %s is stuck after %d deliveries, in state %s", e.id, e.attempts, health.State)
		}
	}
	if complete && !health.Ready {
		x.t.Errorf("not ready: %+v", health)
	}
}
