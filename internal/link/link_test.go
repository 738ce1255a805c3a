package link

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/scripted"
)

// attached is a relay that records what it is notified of.
type attached []string

func (a *attached) Reserve() (time.Duration, bool) { return 0, false }

func (a *attached) Committed(slot int, events []shard.Event, reserved bool) {
	*a = append(*a, fmt.Sprintf("%d events of %d, %t", len(events), slot, reserved))
}

func TestEventsAreAnnouncedToTheRelayOrToOtherProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := scripted.New(func([]string) any { return 1 })
		in := &Inside{Runner: eval.New(server.Client(t), "n", slog.New(slog.DiscardHandler))}
		woken := func() int {
			synctest.Wait()
			return len(server.Heard("spublish"))
		}
		in.Announce(7)
		assert.Equal(t, woken(), 0, "wake-ups without an event")
		in.Announce(7, shard.Event{ID: "a"})
		assert.Equal(t, woken(), 1, "wake-ups after an event")

		var relay, second attached
		assert.Must(t, in.Attach(&relay))
		assert.ErrorContains(t, in.Attach(&second), "already has one", "a second relay")
		in.Announce(7)
		in.Announce(7, shard.Event{ID: "a"})
		in.Announce(8, shard.Event{ID: "a"}, shard.Event{ID: "b"})
		// the first one stands for what slot 7 got before
		if want := []string{"1 events of 7, false", "1 events of 7, false", "2 events of 8, false"}; !slices.Equal(relay, want) || len(second) > 0 {
			t.Errorf("the relay was notified of %q, and the second one of %q", relay, second)
		}
		assert.Equal(t, woken(), 1, "wake-ups while a relay is attached")

		in.Detach()
		assert.Equal(t, in.Relay(), nil, "the relay")
		in.Announce(7, shard.Event{ID: "a"}, shard.Event{ID: "b"})
		assert.Equal(t, woken(), 2, "wake-ups after the relay was detached")
		in.NoWakeUps = true
		in.Announce(7, shard.Event{ID: "a"})
		assert.Equal(t, woken(), 2, "wake-ups of a Transactor without them")
	})
}

func TestRelayLearnsWhichShardsGotEventsWhileNoneWasAttached(t *testing.T) {
	t.Parallel()
	in := &Inside{NoWakeUps: true}
	for _, n := range []int{0, 63, 64, 64, slot.Count - 1} {
		in.Unattended(n)
	}
	var relay, next attached
	assert.Must(t, in.Attach(&relay))
	in.Unattended(7) // its commit began before
	in.Detach()
	assert.Must(t, in.Attach(&next))
	want := []string{"1 events of 0, false", "1 events of 63, false", "1 events of 64, false", "1 events of 16383, false", "1 events of 7, false"}
	if !slices.Equal(relay, want) || len(next) > 0 {
		t.Errorf("the relay learned of %q, want %q; and the next one of %q, want none", relay, want, next)
	}
}

func TestClaimIsThatOfItsTransaction(t *testing.T) {
	t.Parallel()
	in, claim := &Inside{}, &Claim{Failed: func(context.Context, error) (string, []any, bool) { return "", nil, false }}
	tx := NewRecording(in)
	assert.Equal(t, InsideOf(&tx), in, "the inside")
	assert.Equal(t, ClaimOf(&tx), nil, "the claim before it is set")
	SetClaim(&tx, claim)
	assert.Equal(t, ClaimOf(&tx), claim, "the claim")
}

func TestListContinuesWhereItWasToldTo(t *testing.T) {
	t.Parallel()
	var p Position
	slot, at, id, ok := Last(&p)
	if slot != 0 || !at.IsZero() || id != "" || ok {
		t.Errorf("a list begins behind %d, %v, %q, %t", slot, at, id, ok)
	}
	if slot, place, ok := PlaceOf(&p); slot != 0 || place != (shard.Place{}) || ok {
		t.Errorf("a list begins at %d, %v, %t", slot, place, ok)
	}
	Continue(&p, 7, time.Unix(1, 0), "a")
	if slot, at, id, ok := Last(&p); slot != 7 || !at.Equal(time.Unix(1, 0)) || id != "a" || !ok {
		t.Errorf("the list continues behind %d, %v, %q, %t", slot, at, id, ok)
	}
	place := shard.Place{}
	ContinueAt(&p, 8, place)
	if slot, got, ok := PlaceOf(&p); slot != 8 || got != place || !ok {
		t.Errorf("the list continues at %d, %v, %t", slot, got, ok)
	}
}
