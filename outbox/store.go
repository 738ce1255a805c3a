package outbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/script"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// Store operates on the events of a Transactor's shards.
type Store struct {
	scripts  *script.Set
	keyspace luatx.Keyspace
}

// NewStore returns the store of a Transactor. It does no I/O.
func NewStore(t *luatx.Transactor) *Store {
	return &Store{t.Scripts(), t.Keyspace()}
}

// Counts is how many events are in each state.
type Counts struct {
	// Pending wait for a relay, or for their next attempt; Leased are those of them that a relay works on.
	Pending, Leased int64
	// Parked need an operator.
	Parked int64
	// Sent are kept by their id, for a while.
	Sent int64
}

// Counts adds up the events of all shards. With own tags it visits all 16,384 slots.
func (s *Store) Counts(ctx context.Context) (Counts, error) {
	var sum Counts
	for _, n := range s.keyspace.Slots() {
		c, err := s.scripts.Counts(ctx, s.scripts.Shard(n))
		if err != nil {
			return sum, fmt.Errorf("outbox: counts of slot %d: %w", n, err)
		}
		sum.Pending += c.Pending
		sum.Leased += c.Leased
		sum.Parked += c.Parked
		sum.Sent += c.Sent
	}
	return sum, nil
}

// Parked is an event that used up its attempts, or was refused for good. It stays until an operator acts.
type Parked struct {
	Slot     int
	ID       string
	At       time.Time // when it was parked, by the server's clock
	Attempts int
	Error    string // of the last attempt
	Class    string // of that error, in a word
	Message  *message.RawMessage
}

// parkedPage is how many parked events are read at a time.
const parkedPage = 100

// Parked lists the parked events of all shards, the oldest of each first. An event that is parked or re-armed
// meanwhile may be missed or seen. With own tags it visits all 16,384 slots.
func (s *Store) Parked(ctx context.Context) iter.Seq2[Parked, error] {
	return func(yield func(Parked, error) bool) {
		for _, n := range s.keyspace.Slots() {
			for offset := int64(0); ; offset += parkedPage {
				page, err := s.scripts.Parked(ctx, s.scripts.Shard(n), offset, parkedPage)
				if err != nil {
					yield(Parked{}, fmt.Errorf("outbox: parked events of slot %d: %w", n, err))
					return
				}
				for _, p := range page {
					msg, err := Decode(p.Body)
					parked := Parked{Slot: n, ID: p.ID, At: p.At, Attempts: p.Attempts, Message: msg}
					if len(p.Failures) > 0 {
						parked.Error, parked.Class = p.Failures[0].Text, p.Failures[0].Class
					}
					if !yield(parked, err) {
						return
					}
				}
				if len(page) < parkedPage {
					break
				}
			}
		}
	}
}

// Rearm puts parked events of a slot back into pending: due at once, attempts counted anew. It returns how many
// it moved; ids that are not parked are left alone.
func (s *Store) Rearm(ctx context.Context, slotNumber int, ids ...string) (int, error) {
	if slotNumber < 0 || slotNumber >= slot.Count {
		return 0, fmt.Errorf("outbox: slot %d: use 0 to %d", slotNumber, slot.Count-1)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	n, err := s.scripts.Rearm(ctx, s.scripts.Shard(slotNumber), ids)
	if err != nil {
		return 0, fmt.Errorf("outbox: re-arm: %w", err)
	}
	return n, nil
}
