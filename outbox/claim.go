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

// Work configures how events are claimed and settled without a relay. All processes that work on one outbox, including relays,
// must use the same values. relay.Config explains the fields. The zero value is usable.
type Work struct {
	// Limit is the maximum number of events of a claim. Defaults to 100; at most 1000.
	Limit int
	// Lease is how long the events belong to the claimer. Defaults to 30 seconds; at least 100 ms and at most 24 hours.
	Lease time.Duration
	// Attempts is how often an event is tried before it is parked. Defaults to 10.
	Attempts int
	// BackoffBase and BackoffCap bound the pause after a failure. BackoffCap must not be less than BackoffBase. They default to
	// 1 second and 5 minutes.
	BackoffBase, BackoffCap time.Duration
	// SentRetention is how long sent events with given ids are remembered. Defaults to 1 hour. A negative value remembers none.
	SentRetention time.Duration
	// KeepSentBodies keeps the ids and bodies of all sent events for SentRetention.
	KeepSentBodies bool
	// LaneContinues lets a lane continue behind a parked event.
	LaneContinues bool
}

func (w Work) withDefaults() Work {
	w.Limit = cmp.Or(w.Limit, 100)
	w.Lease = cmp.Or(w.Lease, 30*time.Second)
	w.Attempts = cmp.Or(w.Attempts, 10)
	w.BackoffBase = cmp.Or(w.BackoffBase, time.Second)
	w.BackoffCap = cmp.Or(w.BackoffCap, 5*time.Minute)
	w.SentRetention = cmp.Or(w.SentRetention, time.Hour)
	return w
}

// validate checks a Work with its defaults.
func (w Work) validate() error {
	switch {
	case w.Limit < 1 || w.Limit > shard.MaxLimit:
		return fmt.Errorf("outbox: Work.Limit is %d; use 1 to %d, or 0 for the default", w.Limit, shard.MaxLimit)
	case w.Lease < shard.MinLease || w.Lease > shard.MaxLease:
		return fmt.Errorf("outbox: Work.Lease is %v; use %v to %v, or 0 for the default", w.Lease, shard.MinLease, shard.MaxLease)
	case w.Attempts < 0:
		return fmt.Errorf("outbox: Work.Attempts is %d; use 0 for the default, or more", w.Attempts)
	case w.BackoffBase < 0:
		return fmt.Errorf("outbox: Work.BackoffBase is %v; use 0 for the default, or more", w.BackoffBase)
	case w.BackoffCap < w.BackoffBase:
		return fmt.Errorf("outbox: Work.BackoffCap is %v; use at least BackoffBase, %v", w.BackoffCap, w.BackoffBase)
	}
	return nil
}

// A Batch holds events under one lease.
type Batch struct {
	Slot   int
	Events []BatchEvent
	// Parked counts the events that had used up their attempts, because each claimer died with them. Orphans counts the ids
	// without an event. Neither is among Events.
	Parked, Orphans int

	lease string
}

// A BatchEvent is an event under a lease.
type BatchEvent struct {
	ID      string
	Attempt int
	// Message is the event. It is nil if the body cannot be read or decoded, and Err is the reason.
	Message *message.RawMessage
	Err     error
}

// unreadError is the error of an event whose body could not be read.
type unreadError struct{ err error }

func (e unreadError) Error() string { return "outbox: claim: the body was not read: " + e.err.Error() }
func (e unreadError) Unwrap() error { return e.err }

// Untried reports that the event was not tried.
func (unreadError) Untried() bool { return true }

// backTimeout bounds the attempt to give back events whose bodies could not be read.
const backTimeout = time.Second

// Claim leases due events of a slot, the longest-overdue first. No other claimer gets them before the lease expires. Claim counts
// the attempt at once, so that an event that crashes its process is eventually parked.
//
// If the client cannot read the body of a large event, Claim gives that event back, and the attempt does not count. The event is
// in the Batch with its error, and is due again after Work.BackoffBase. If the server does not reply, the event stays leased, but
// Failed accepts the error without counting the attempt.
func (s *Store) Claim(ctx context.Context, slotNumber int, work Work) (Batch, error) {
	work = work.withDefaults()
	if err := errors.Join(checkSlot(slotNumber), work.validate()); err != nil {
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
	var unread []Fault
	for _, e := range claim.Events {
		event := BatchEvent{ID: e.ID, Attempt: e.Attempt}
		if e.Unread != nil {
			event.Err = unreadError{e.Unread}
			unread = append(unread, Fault{e.ID, event.Err})
		} else if event.Message, event.Err = Decode(e.Body); event.Err == nil && e.Route != "" {
			event.Message.Attributes[message.AttrDestination] = e.Route
		}
		taken.Events = append(taken.Events, event)
	}
	if len(unread) > 0 {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTimeout) // the caller's context may have ended
		defer cancel()
		_, _ = s.Failed(back, taken, work, unread...) // the caller has the errors, and can try again
	}
	return taken, nil
}

// Sent records that events of a slot were published, regardless of their lease: sent always wins. It returns 1 for each event
// that is sent now, and 0 for an event that was sent before or is unknown, which stays unchanged.
func (s *Store) Sent(ctx context.Context, slotNumber int, work Work, ids ...string) ([]int, error) {
	rows := make([]shard.Settlement, len(ids))
	for i, id := range ids {
		rows[i] = shard.Settlement{ID: id, What: settle.Sent}
	}
	return s.settle(ctx, slotNumber, work, rows)
}

// A Fault is a failed attempt to publish an event.
type Fault struct {
	ID string
	// Err is the reason. An error from message.Permanent parks the event at once. An error from relay.Later or relay.Unavailable
	// does not count as an attempt. If the error has a method Class() string, it returns the class of the failure.
	Err error
}

// Failed records failures of events of a claim. The events are due again after a pause, or are parked if their attempts are used
// up. Failed returns 1 for each recorded failure, and 0 for an event that was settled or no longer belongs to the claimer, which
// stays unchanged. It returns an error if a failure has no Err.
func (s *Store) Failed(ctx context.Context, taken Batch, work Work, failures ...Fault) ([]int, error) {
	work = work.withDefaults()
	if err := work.validate(); err != nil {
		return nil, err
	}
	rows := make([]shard.Settlement, len(failures))
	for i, f := range failures {
		if f.Err == nil {
			return nil, fmt.Errorf("outbox: settle: event %q failed without an error; set Error", f.ID)
		}
		fate := settle.Decide(f.Err)
		row := shard.Settlement{ID: f.ID, What: string(fate), Lease: taken.lease, Class: classOf(f.Err), Error: f.Err.Error()}
		switch fate {
		case settle.GiveBack:
			row.Number = float64(settle.Pause(f.Err, work.BackoffBase).Milliseconds())
		case settle.Park:
			row.Class = cmp.Or(row.Class, "refused")
		default:
			row.Number = rand.Float64()
		}
		rows[i] = row
	}
	if taken.lease == "" { // without a lease, the script would treat the caller as the committer of the events
		return make([]int, len(rows)), nil
	}
	return s.settle(ctx, taken.Slot, work, rows)
}

func (s *Store) settle(ctx context.Context, slotNumber int, work Work, rows []shard.Settlement) ([]int, error) {
	work = work.withDefaults()
	if err := errors.Join(checkSlot(slotNumber), work.validate()); err != nil {
		return nil, err
	}
	if len(rows) > shard.MaxLimit {
		return nil, fmt.Errorf("outbox: settle: the call has %d events; use at most %d", len(rows), shard.MaxLimit)
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

// classOf returns the class of an error, or "" if it has none.
func classOf(err error) string {
	if c, ok := errors.AsType[interface {
		error
		Class() string
	}](err); ok {
		return c.Class()
	}
	return ""
}
