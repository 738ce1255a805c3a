package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// TestRelayLendsItsOnlyInlineSlotAgain checks each result of a commit, and reserves the only slot before each.
func TestRelayLendsItsOnlyInlineSlotAgain(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, out := newTransactor(t, client), newSink()
	r, err := relay.New(tr, out, relay.Config{InlineSlots: 1, SweepInterval: time.Hour})
	redistest.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(ctx) }()
	free := func() bool {
		attached := link.Of(tr).Relay()
		if attached == nil {
			return false
		}
		_, ok := attached.Reserve()
		return ok
	}
	redistest.Eventually(t, "the relay to lend its slot", free)
	plain, slot := shard.Event{ID: "plain", Body: body("plain")}, tr.Keyspace().Slots()[0]
	others := []shard.Event{
		{ID: "ordered", Key: "k", Body: body("ordered")}, {ID: "scheduled", At: time.Now().Add(time.Hour), Body: body("scheduled")},
	}
	for _, c := range []struct {
		name   string
		events []shard.Event
		inline bool // releasing the slot takes a moment
	}{
		{"nothing committed", nil, false},
		{"events that are not published inline", others, false},
		{"an event that is published inline", []shard.Event{plain}, true},
		{"events of all kinds", append([]shard.Event{plain}, others...), true},
	} {
		if free() {
			t.Errorf("%s: the slot is lent twice", c.name)
		}
		link.Of(tr).Relay().Committed(slot, append([]shard.Event{}, c.events...), false)
		if free() {
			t.Errorf("%s: a commit without a reservation returns the slot of another", c.name)
		}
		link.Of(tr).Relay().Committed(slot, append([]shard.Event{}, c.events...), true)
		if c.inline {
			redistest.Eventually(t, c.name+": the slot to be free", free)
		} else if !free() {
			t.Fatalf("%s: the slot is lost", c.name)
		}
	}
	link.Of(tr).Relay().Committed(slot, nil, true)
	if !free() || free() {
		t.Error("there is not exactly one slot in the end")
	}
	link.Of(tr).Relay().Committed(slot, nil, true)
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if n := out.count("plain"); n != 2 {
		t.Errorf("the event was published inline %d times, want 2", n)
	}
}

// TestInlineEventThatHasWaitedHasTheRestOfItsLease checks that its call ends before another relay may claim it.
func TestInlineEventThatHasWaitedHasTheRestOfItsLease(t *testing.T) {
	t.Parallel()
	tr := newTransactor(t, redistest.Shared(t).Client(t))
	const lease = 30 * time.Second
	reached, open, ends := make(chan struct{}), make(chan struct{}), make(chan time.Time, 1)
	start(t, tr, relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		if events[0].ID() == "first" {
			close(reached)
			<-open
			return nil
		}
		end, _ := ctx.Deadline()
		ends <- end
		return nil
	}), relay.Config{Concurrency: 1, Lease: lease})
	emit(t, tr, "a", "first")
	<-reached
	emit(t, tr, "a", "second")
	committed := time.Now()
	close(open)
	if end := <-ends; end.After(committed.Add(lease * 2 / 3)) {
		t.Errorf("its call may take until %v after two thirds of its lease", end.Sub(committed.Add(lease*2/3)))
	}
}
