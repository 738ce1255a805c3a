package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

// Work is how events are claimed and settled where no relay does. All who work on one outbox must agree on it, relays
// included; relay.Config explains the fields. Its zero value works.
type Work struct {
	// Limit is the most events of a claim. Defaults to 100; at most 1000.
	Limit int
	// Lease is how long they are the claimer's. Defaults to 30 seconds.
	Lease time.Duration
	// Attempts is how often an event is tried before it is parked. Defaults to 10.
	Attempts int
	// BackoffBase and BackoffCap bound the pause after a failure. They default to 1 second and 5 minutes.
	BackoffBase, BackoffCap time.Duration
	// SentRetention is how long sent events with given ids are remembered. Defaults to 1 hour; negative: not at all.
	SentRetention time.Duration
	// KeepSentBodies keeps the ids and bodies of all sent events for as long.
	KeepSentBodies bool
	// LaneContinues says that a parked event does not hold up those behind it in its lane.
	LaneContinues bool
}

const maxClaim = 1000

func (w Work) withDefaults() Work {
	w.Limit = min(cmp.Or(w.Limit, 100), maxClaim)
	w.Lease = cmp.Or(w.Lease, 30*time.Second)
	w.Attempts = cmp.Or(w.Attempts, 10)
	w.BackoffBase = cmp.Or(w.BackoffBase, time.Second)
	w.BackoffCap = cmp.Or(w.BackoffCap, 5*time.Minute)
	w.SentRetention = cmp.Or(w.SentRetention, time.Hour)
	return w
}

// A Batch is events under one lease.
type Batch struct {
	Slot   int
	Events []BatchEvent
	// Parked had used up their attempts: whoever had them died each time. Orphans were ids without an event; both are
	// not among Events.
	Parked, Orphans int

	lease string
}

// A BatchEvent is an event under a lease.
type BatchEvent struct {
	ID      string
	Attempt int
	// Message is the event, or nil where its body cannot be decoded, with Err.
	Message *message.RawMessage
	Err     error
}

// Claim takes due events of a slot, the oldest due first, under a lease: nobody else takes them before it has run out.
// The attempt is counted now, so that an event which kills its process is parked at last.
func (s *Store) Claim(ctx context.Context, slotNumber int, work Work) (Batch, error) {
	work = work.withDefaults()
	if err := checkSlot(slotNumber); err != nil {
		return Batch{}, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	claim, err := s.scripts.Claim(ctx, s.scripts.Shard(slotNumber), shard.Claiming{
		Limit: work.Limit, Lease: work.Lease, Attempts: work.Attempts, Continues: work.LaneContinues,
	})
	if err != nil {
		return Batch{}, storageError("claim", slotNumber, err)
	}
	taken := Batch{Slot: slotNumber, Parked: claim.Parked, Orphans: claim.Orphans, lease: claim.Lease}
	for _, e := range claim.Events {
		event := BatchEvent{ID: e.ID, Attempt: e.Attempt}
		if event.Message, event.Err = Decode(e.Body); event.Err == nil && e.Route != "" {
			event.Message.Attributes[message.AttrDestination] = e.Route
		}
		taken.Events = append(taken.Events, event)
	}
	return taken, nil
}

// Sent says that events of a slot were published, whoever has them: sent always wins. It answers 1 for each event that
// is sent now, and 0 for one that was before, or is not known: that one stays as it is.
func (s *Store) Sent(ctx context.Context, slotNumber int, work Work, ids ...string) ([]int, error) {
	rows := make([]shard.Settlement, len(ids))
	for i, id := range ids {
		rows[i] = shard.Settlement{ID: id, What: settle.Sent}
	}
	return s.settle(ctx, slotNumber, work, rows)
}

// A Fault is an attempt to publish that failed.
type Fault struct {
	ID string
	// Err is why. One made by message.Permanent parks the event at once; one made by relay.Later or relay.Unavailable costs
	// no attempt. A Class() string in it says what kind of failure it is.
	Err error
}

// Failed notes failures of events of a claim: they are due again after a pause, or parked where their attempts are used
// up. It answers 1 for each that was noted, and 0 for one that is not the claimer's any more, or was settled: that one
// stays as it is.
func (s *Store) Failed(ctx context.Context, taken Batch, work Work, failures ...Fault) ([]int, error) {
	rows := make([]shard.Settlement, len(failures))
	for i, f := range failures {
		if f.Err == nil {
			return nil, fmt.Errorf("outbox: event %q failed without an error", f.ID)
		}
		fate := settle.Decide(f.Err)
		row := shard.Settlement{ID: f.ID, What: string(fate), Lease: taken.lease, Class: classOf(f.Err), Error: f.Err.Error()}
		switch fate {
		case settle.GiveBack:
			row.Number = float64(settle.Pause(f.Err, work.withDefaults().BackoffBase).Milliseconds())
		case settle.Park:
			row.Class = cmp.Or(row.Class, "refused")
		default:
			row.Number = rand.Float64()
		}
		rows[i] = row
	}
	if taken.lease == "" { // the script would take the events for the committer's own
		return make([]int, len(rows)), nil
	}
	return s.settle(ctx, taken.Slot, work, rows)
}

func (s *Store) settle(ctx context.Context, slotNumber int, work Work, rows []shard.Settlement) ([]int, error) {
	work = work.withDefaults()
	if err := checkSlot(slotNumber); err != nil {
		return nil, err
	}
	if len(rows) > maxClaim {
		return nil, fmt.Errorf("outbox: settle: %d events: use at most %d a call", len(rows), maxClaim)
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	settled, err := s.scripts.Settle(ctx, s.scripts.Shard(slotNumber), shard.Settling{
		Attempts: work.Attempts, Base: work.BackoffBase, Cap: work.BackoffCap, Retention: work.SentRetention,
		KeepBody: work.KeepSentBodies, Continues: work.LaneContinues,
	}, rows)
	if err != nil {
		return nil, storageError("settle", slotNumber, err)
	}
	done := make([]int, len(rows))
	for i, what := range settled.Done {
		if what != "stale" {
			done[i] = 1
		}
	}
	return done, nil
}

// classOf is the class of an error that has one.
func classOf(err error) string {
	if c, ok := errors.AsType[interface {
		error
		Class() string
	}](err); ok {
		return c.Class()
	}
	return ""
}
