package outbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
)

// Outcome is the result of an operation for one event.
type Outcome string

// The outcomes. Only Done changes the event.
const (
	// Done means that the operation was performed.
	Done Outcome = "done"
	// Unknown means that the shard does not have the event, or no longer has it.
	Unknown Outcome = "unknown"
	// WrongState means that the event is not parked or, for a replay, not sent.
	WrongState Outcome = "wrong state"
	// Newer means that the event was parked or sent after the operation had begun.
	Newer Outcome = "newer"
	// NoBody means that the body was erased or not kept.
	NoBody Outcome = "no body"
	// InUse means that a relay has leased the event. Try again after the lease.
	InUse Outcome = "in use"
	// Full means that the shard's outbox is full; see luatx.Config.OutboxCapacity, OutboxBytes and ParkedCapacity.
	Full Outcome = "full"
	// Known means that the event was imported before or never left the shard.
	Known Outcome = "known"
	// Conflicting means that the shard has the id with another body.
	Conflicting Outcome = "another body"
)

var outcomes = map[byte]Outcome{
	shard.ActDone: Done, shard.ActUnknown: Unknown, shard.ActState: WrongState, shard.ActNewer: Newer,
	shard.ActErased: NoBody, shard.ActNoBody: NoBody, shard.ActLeased: InUse, shard.ActFull: Full, shard.ActKnown: Known,
	shard.ActOther: Conflicting,
}

// Answer is the result for one event.
type Answer struct {
	ID      string
	Outcome Outcome
}

// Answers are results in the order of the ids.
type Answers []Answer

// Done returns the number of events with the outcome Done.
func (a Answers) Done() int {
	n := 0
	for _, answer := range a {
		if answer.Outcome == Done {
			n++
		}
	}
	return n
}

func answers(ids []string, letters string) Answers {
	list := make(Answers, len(ids))
	for i, id := range ids {
		list[i] = Answer{id, outcomes[letters[i]]}
	}
	return list
}

// maxIDs is the maximum number of events that one script operates on.
const maxIDs = 1000

// Rearm makes parked events of a slot pending again: due at once or, if they are ordered, in their place in their lanes. It
// resets the attempts and keeps the history. To set a destination or a rate, see RearmAll. If Rearm returns an error, it also
// returns the results so far. The store must have an operator; see As.
func (s *Store) Rearm(ctx context.Context, slotNumber int, ids ...string) (Answers, error) {
	return s.actOn(ctx, "re-arm", "by id", slotNumber, ids, func(ctx context.Context, shard shard.Shard, act shard.Act, ids []string) (string, error) {
		return s.scripts.Rearm(ctx, shard, act, noCutoff, "", ids)
	})
}

// Discard removes parked events of a slot with their bodies and ids, so that the same event would be new again. Their lanes
// continue. The audit records the reason. If Discard returns an error, it also returns the results so far. The store must have an
// operator; see As.
func (s *Store) Discard(ctx context.Context, slotNumber int, reason string, ids ...string) (Answers, error) {
	return s.actOn(ctx, "discard", reason, slotNumber, ids, s.scripts.Discard)
}

// Erase erases the bodies of events of a slot, and the texts of their failures. It works on parked events, and on sent ones with
// a body. It parks pending and waiting events with the class erased and removes them from their lanes, which continue. A leased
// event is InUse. An erased event and its id stay; it can only be discarded, not re-armed. The audit records the reason. If Erase
// returns an error, it also returns the results so far. The store must have an operator; see As.
//
// The server's append-only file contains the body until it is rewritten. Backups keep it.
func (s *Store) Erase(ctx context.Context, slotNumber int, reason string, ids ...string) (Answers, error) {
	return s.actOn(ctx, "erase", reason, slotNumber, ids, s.scripts.Erase)
}

type actScript func(context.Context, shard.Shard, shard.Act, []string) (string, error)

// actOn runs a script on ids, in calls of limited size.
func (s *Store) actOn(ctx context.Context, op, why string, slotNumber int, ids []string, run actScript) (Answers, error) {
	o, err := s.begin(why)
	if err != nil {
		return nil, err
	}
	if err := checkSlot(slotNumber); err != nil {
		return nil, err
	}
	if why == "" {
		return nil, fmt.Errorf("outbox: %s: the reason is empty; set a reason for the audit", op)
	}
	var all Answers
	for chunk := range slices.Chunk(ids, maxIDs) {
		done, err := o.call(ctx, op, slotNumber, chunk, run)
		if all = append(all, done...); err != nil {
			return all, err
		}
	}
	return all, nil
}

// call runs one script of an operation and notifies the relay of this process.
func (o *operation) call(ctx context.Context, op string, n int, ids []string, run actScript) (Answers, error) {
	ctx, cancel := o.store.bounded(ctx)
	defer cancel()
	letters, err := run(ctx, o.store.scripts.Shard(n), o.next(), ids)
	if err != nil {
		return nil, storageError(op, n, err)
	}
	all := answers(ids, letters)
	if all.Done() > 0 {
		link.Of(o.store.transactor).Announce(n, shard.Event{ID: ids[0]})
	}
	return all, nil
}
