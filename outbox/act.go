package outbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
)

// Outcome is what became of an event in an operator's act.
type Outcome string

// The outcomes. But for Done nothing has changed.
const (
	// Done: what was asked for.
	Done Outcome = "done"
	// Unknown: the shard does not know the event, or not any more.
	Unknown Outcome = "unknown"
	// WrongState: the event is in a state that the act is not for: not parked, or for a replay not sent.
	WrongState Outcome = "wrong state"
	// Newer: it was parked, or sent, after the operation had begun.
	Newer Outcome = "newer"
	// NoBody: its body was erased, or not kept.
	NoBody Outcome = "no body"
	// InUse: a relay has it. Try again when its lease is over.
	InUse Outcome = "in use"
	// Full: the shard's outbox has no room for it; see luatx.Config.OutboxCapacity, OutboxBytes and ParkedCapacity.
	Full Outcome = "full"
	// Known: it was imported before, or has always been there.
	Known Outcome = "known"
	// Conflicting: its id is known with another body.
	Conflicting Outcome = "another body"
)

var outcomes = map[byte]Outcome{
	shard.ActDone: Done, shard.ActUnknown: Unknown, shard.ActState: WrongState, shard.ActNewer: Newer,
	shard.ActErased: NoBody, shard.ActNoBody: NoBody, shard.ActLeased: InUse, shard.ActFull: Full, shard.ActKnown: Known,
	shard.ActOther: Conflicting,
}

// Answer is what became of one event.
type Answer struct {
	ID      string
	Outcome Outcome
}

// Answers are in the order of the ids that were asked for.
type Answers []Answer

// Done counts the events that the act was done to.
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

// maxIDs is how many events one script acts on.
const maxIDs = 1000

// Rearm puts parked events of a slot back into pending, due at once, or into their place in their lanes; their attempts
// are counted anew, their history stays. For another destination, or a rate, see RearmAll. Beside an error are the answers
// so far. The store must name who acts: see As.
func (s *Store) Rearm(ctx context.Context, slotNumber int, ids ...string) (Answers, error) {
	return s.actOn(ctx, "re-arm", "by id", slotNumber, ids, func(ctx context.Context, shard shard.Shard, act shard.Act, ids []string) (string, error) {
		return s.scripts.Rearm(ctx, shard, act, noCutoff, "", ids)
	})
}

// Discard removes parked events of a slot for good, their bodies and their ids: the same event would be new again. Their
// lanes go on. The reason is recorded. Beside an error are the answers so far. The store must name who acts: see As.
func (s *Store) Discard(ctx context.Context, slotNumber int, reason string, ids ...string) (Answers, error) {
	return s.actOn(ctx, "discard", reason, slotNumber, ids, s.scripts.Discard)
}

// Erase erases the bodies of events of a slot: of parked ones, and of sent ones whose bodies were kept. What is pending or
// waiting is parked then, with the class erased, and leaves its lane, which goes on. The event stays and its id is known;
// it cannot be re-armed, only discarded. The texts of its failures go as well. What a relay has in hand is InUse. The
// reason is recorded. Beside an error are the answers so far. The store must name who acts: see As.
//
// A copy in the server's append-only file goes when that is rewritten; in backups it stays.
func (s *Store) Erase(ctx context.Context, slotNumber int, reason string, ids ...string) (Answers, error) {
	return s.actOn(ctx, "erase", reason, slotNumber, ids, s.scripts.Erase)
}

type actScript func(context.Context, shard.Shard, shard.Act, []string) (string, error)

// actOn runs a script over ids, in bounded calls.
func (s *Store) actOn(ctx context.Context, op, why string, slotNumber int, ids []string, run actScript) (Answers, error) {
	o, err := s.begin(why)
	if err != nil {
		return nil, err
	}
	if err := checkSlot(slotNumber); err != nil {
		return nil, err
	}
	if why == "" {
		return nil, fmt.Errorf("outbox: %s without a reason: name one, it is recorded", op)
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

// call runs one script of an operation, and tells this process's relay.
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
