package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// Store operates on the events of a Transactor's shards. It is safe for concurrent use, beside commits and relays.
//
// With own tags its listings and sums ask all 16,384 slots what they hold, and look closer at those that hold something.
// Its errors are *StorageError where a server could not do what was asked.
type Store struct {
	transactor *luatx.Transactor
	scripts    *shard.Scripts
	keyspace   luatx.Keyspace
	operator   string
	allow      func(destination string) error // nil: any
	events     Config                         // of Enqueue
}

// NewStore returns the store of a Transactor. It does no I/O.
func NewStore(t *luatx.Transactor) *Store {
	return &Store{transactor: t, scripts: link.Of(t).Scripts, keyspace: t.Keyspace()}
}

// As returns the store as an operator uses it: every act on events is recorded under this name, of at most 256 bytes.
// See Audit.
func (s *Store) As(operator string) *Store {
	named := *s
	named.operator = operator
	return &named
}

// ErrDestination is the cause if the check of WithDestinations refuses a destination.
var ErrDestination = errors.New("outbox: the destination is not allowed")

// WithDestinations returns the store with a check of the destinations that an operator sets by RearmOptions.Destination:
// RearmAll fails with ErrDestination and the error that allow returns. A nil allow accepts any destination.
func (s *Store) WithDestinations(allow func(destination string) error) *Store {
	checked := *s
	checked.allow = allow
	return &checked
}

// CheckDestination returns the error of RearmAll for a destination that WithDestinations does not allow.
func (s *Store) CheckDestination(destination string) error {
	if destination == "" || s.allow == nil {
		return nil
	}
	if err := s.allow(destination); err != nil {
		return fmt.Errorf("%w: %.200q: %w", ErrDestination, destination, err)
	}
	return nil
}

// Slot returns the slot whose shard holds the events of an aggregate.
func (s *Store) Slot(aggregate string) (int, error) {
	tag, err := s.keyspace.Tag(aggregate)
	if err != nil {
		return 0, err
	}
	return slot.OfTag(tag), nil
}

// StorageError is an operation that the server did not do.
type StorageError struct {
	// Op is what was asked for: counts, list, re-arm …
	Op string
	// Slot is the shard's, or -1 where there is no single one.
	Slot int
	Err  error
}

func (e *StorageError) Error() string {
	if e.Slot < 0 {
		return fmt.Sprintf("outbox: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("outbox: %s of slot %d: %v", e.Op, e.Slot, e.Err)
}

// Unwrap returns the server's, the client's or the context's error.
func (e *StorageError) Unwrap() error { return e.Err }

// storageError makes a StorageError, unless there is no error.
func storageError(op string, slot int, err error) error {
	if err == nil {
		return nil
	}
	if of, ok := errors.AsType[*shard.SlotError](err); ok {
		slot, err = of.Slot, of.Err
	}
	return &StorageError{op, slot, err}
}

func checkSlot(n int) error {
	if n < 0 || n >= slot.Count {
		return fmt.Errorf("outbox: slot %d: use 0 to %d", n, slot.Count-1)
	}
	return nil
}

// slotsAtOnce are asked in one pipeline.
const slotsAtOnce = 256

// chunks calls ask with the slots given, or those of all shards, some at a time.
func (s *Store) chunks(slots []int, ask func([]int) error) error {
	if len(slots) == 0 {
		slots = s.keyspace.Slots()
	}
	for chunk := range slices.Chunk(slots, slotsAtOnce) {
		if err := ask(chunk); err != nil {
			return err
		}
	}
	return nil
}

// bounded is a context for one script, which is tried again until it ends.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.transactor.Config().CommitTimeout)
}

// maxOperator is the longest name of an operator, in bytes; maxReason that of a reason.
const (
	maxOperator = 256
	maxReason   = 1024
)

// errNobody says that a store does not know who acts.
var errNobody = errors.New("outbox: nobody is named for the audit: use store.As(\"alice\")")

// operation is one act of an operator, of any number of calls.
type operation struct {
	store *Store
	act   shard.Act
}

// begin names an operation in the audit.
func (s *Store) begin(why string) (*operation, error) {
	switch {
	case s.operator == "":
		return nil, errNobody
	case len(s.operator) > maxOperator:
		return nil, fmt.Errorf("outbox: the operator's name has %d bytes: use at most %d", len(s.operator), maxOperator)
	case len(why) > maxReason:
		return nil, fmt.Errorf("outbox: the reason has %d bytes: use at most %d", len(why), maxReason)
	}
	return &operation{s, shard.Act{Operation: rand.Text()[:16], Who: s.operator, Why: why}}, nil
}

// next is the operation's next call.
func (o *operation) next() shard.Act {
	o.act.Call++
	return o.act
}
