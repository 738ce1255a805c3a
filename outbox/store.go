package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// Store operates on the events of a Transactor's shards. It is safe for concurrent use, also with commits and relays. With
// OwnTags, its lists and sums first ask all 16,384 slots whether they hold anything. If a server does not perform an operation,
// Store returns a *StorageError.
type Store struct {
	transactor *luatx.Transactor
	scripts    *shard.Scripts
	keyspace   luatx.Keyspace
	operator   string
	allow      func(destination string) error // nil allows any destination
	events     Config                         // for Enqueue
}

// NewStore returns the store of a Transactor. It does no I/O.
func NewStore(t *luatx.Transactor) *Store {
	return &Store{transactor: t, scripts: link.Of(t).Scripts, keyspace: t.Keyspace()}
}

// As returns a copy of the store for an operator. The audit records every change of events under the operator's name, which has
// at most 256 bytes. See Audit.
func (s *Store) As(operator string) *Store {
	named := *s
	named.operator = operator
	return &named
}

// ErrDestination is the cause if the check of WithDestinations rejects a destination.
var ErrDestination = errors.New("outbox: the destination is not allowed")

// WithDestinations returns a copy of the store that checks the destinations set by RearmOptions.Destination. RearmAll fails with
// ErrDestination and the error that allow returns. A nil allow accepts any destination.
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

// Slot returns the slot whose shard holds the events of an aggregate. It returns an error if the aggregate id is invalid.
func (s *Store) Slot(aggregate string) (int, error) {
	tag, err := s.keyspace.Tag(aggregate)
	if err != nil {
		return 0, err
	}
	return slot.OfTag(tag), nil
}

// StorageError is returned for an operation that the server did not perform.
type StorageError struct {
	// Op is the operation: counts, list, re-arm …
	Op string
	// Slot is the slot of the shard, or -1 if several shards were involved.
	Slot int
	Err  error
}

func (e *StorageError) Error() string {
	if e.Slot < 0 {
		return fmt.Sprintf("outbox: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("outbox: %s of slot %d: %v", e.Op, e.Slot, e.Err)
}

// Unwrap returns the error of the server, the client or the context.
func (e *StorageError) Unwrap() error { return e.Err }

// storageError returns a StorageError for err, or nil if err is nil.
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
		return fmt.Errorf("outbox: the slot is %d; use 0 to %d", n, slot.Count-1)
	}
	return nil
}

// slotsAtOnce is the number of slots in one pipeline.
const slotsAtOnce = 256

// chunks calls ask with the given slots, or with those of all shards, in chunks.
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

// bounded returns a context for one script, which is retried until the context ends.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.transactor.Config().CommitTimeout)
}

// maxOperator is the maximum size of an operator's name, and maxReason that of a reason, in bytes.
const (
	maxOperator = 256
	maxReason   = 1024
)

// brief cuts a reason to at most maxReason bytes, between two characters.
func brief(why string) string { return strings.ToValidUTF8(why[:min(len(why), maxReason)], "") }

var errNobody = errors.New("outbox: the audit has no operator; use store.As(\"alice\")")

// operation is one operation of an operator, with any number of calls.
type operation struct {
	store *Store
	act   shard.Act
}

// begin starts an operation with an id for the audit. It returns an error if the store has no operator or the reason is too long.
func (s *Store) begin(why string) (*operation, error) {
	switch {
	case s.operator == "":
		return nil, errNobody
	case len(s.operator) > maxOperator:
		return nil, fmt.Errorf("outbox: the operator's name has %d bytes; use at most %d", len(s.operator), maxOperator)
	case len(why) > maxReason:
		return nil, fmt.Errorf("outbox: the reason has %d bytes; use at most %d", len(why), maxReason)
	}
	return &operation{s, shard.Act{Operation: rand.Text()[:16], Who: s.operator, Why: why}}, nil
}

// next returns the act of the operation's next call.
func (o *operation) next() shard.Act {
	o.act.Call++
	return o.act
}
