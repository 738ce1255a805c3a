package message

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Position is where a message stands in a source that keeps order. An inbox of positions, such as inbox.Position, commits it with
// the handler's writes, so that every redelivery is a duplicate without a list of ids.
type Position struct {
	// Source names what keeps the order, such as a Kafka topic or a partitioned stream. It must not be empty.
	Source string
	// Partition names one ordered sequence of the source. It may be empty for a source with one sequence.
	Partition string
	// Offset is the message's place in the partition: 1 to 64 decimal digits, padded to the same length within a source, so that
	// the order of the texts is the order of the messages. It must not be empty.
	Offset string
	// After is the offset of the message that must be committed first, because the source delivered it before this one and it was
	// not settled yet. Leave it empty if the source delivers one message of the partition at a time.
	After string
	// Epoch changes when the source starts to count again, for example because a topic was created anew. It may be empty.
	Epoch string
	// Tenure is the ownership of the partition under which this process reads the message. It must not be nil.
	Tenure *Tenure
}

// Tenure is one ownership of a partition by this process, from an assignment to the loss of it. Its identity is its pointer: a
// subscriber creates a new one at each assignment. Commits of an older tenure are rejected after a newer one has started.
type Tenure struct {
	// Shared means that other processes may hold the partition at the same time, and that the source orders their messages. Such
	// tenures do not reject each other's commits. Defaults to one owner.
	Shared bool

	mu     sync.Mutex
	values map[any]any
}

// Value returns the value that the tenure holds under a key, for as long as the tenure exists. The first call creates it. An inbox keeps
// there what it knows of the tenure. The key must be comparable and should have a type of its own, and create must not call Value.
func (t *Tenure) Value(key any, create func() any) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	value, ok := t.values[key]
	if !ok {
		value = create()
		if t.values == nil {
			t.values = map[any]any{}
		}
		t.values[key] = value
	}
	return value
}

// Position returns where the message stands in its source. It returns false if the source keeps no order or the acking is shared.
func (m *TypedMessage[T]) Position() (Position, bool) {
	if p := m.acking.placed(); p != nil {
		return p.at, true
	}
	return Position{}, false
}

// Delivered returns the encoded message that the source has delivered, which an Engine decodes in a copy. It returns false if the
// message has no Position, or never was encoded.
func (m *TypedMessage[T]) Delivered() (*RawMessage, bool) {
	if p := m.acking.placed(); p != nil {
		return p.raw, p.raw != nil
	}
	return nil, false
}

// placed is a position with the encoded message that has it.
type placed struct {
	at  Position
	raw *RawMessage
}

func (a *Acking) placed() *placed {
	if a == nil || a.group != nil {
		return nil
	}
	return a.at
}

// own notes the encoded message to which the acking belongs, if it has a position.
func (a *Acking) own(msg any) {
	if p := a.placed(); p != nil {
		if raw, ok := msg.(*RawMessage); ok {
			p.raw = raw
		}
	}
}

const (
	maxOffset = 64
	maxName   = 256
)

// Validate returns an error if an inbox cannot use the position.
func (p Position) Validate() error {
	switch {
	case p.Source == "" || len(p.Source) > maxName || len(p.Partition) > maxName || len(p.Epoch) > maxName:
		return fmt.Errorf("message: Position: Source, Partition or Epoch is longer than %d bytes, or Source is empty", maxName)
	case strings.Contains(p.Source, "\x00") || strings.Contains(p.Partition, "\x00"):
		return errors.New("message: Position: Source or Partition has a NUL; leave it out")
	case !isOffset(p.Offset) || p.After != "" && (!isOffset(p.After) || len(p.After) != len(p.Offset) || p.After >= p.Offset):
		return fmt.Errorf("message: Position: Offset %.80q and After %.80q; use 1 to %d digits, as many in both, After below Offset", p.Offset, p.After, maxOffset)
	case p.Tenure == nil:
		return errors.New("message: Position: Tenure is nil; create one at each assignment of the partition")
	}
	return nil
}

func isOffset(s string) bool {
	return s != "" && len(s) <= maxOffset && strings.Trim(s, "0123456789") == ""
}

// orderKeeper is a Subscriber that states whether it keeps order.
type orderKeeper interface{ Ordered() error }

// checkOrder returns an error if a middleware needs order and the ack strategy or a subscriber does not keep it.
func (r *Router) checkOrder(inputs []rawInput) error {
	all := r.traits()
	i := slices.IndexFunc(all, func(t Traits) bool { return t.Ordered })
	if i < 0 {
		return nil
	}
	if r.cfg.AckStrategy == AckManual {
		return &WiringError{
			Problem: fmt.Sprintf("AckManual with %s: the handler may settle a message before the one in front of it is committed", all[i].Name),
			Remedy:  "use AckOnSuccess, or inbox.Middleware, which remembers ids",
		}
	}
	for _, in := range inputs {
		if in.subscriber == nil {
			continue // found with its first message, which has no position
		}
		if err := keepsOrder(in.subscriber); err != nil {
			return &WiringError{
				Problem: fmt.Sprintf("%s needs messages in order, and the subscriber of raw input %q does not keep it: %v", all[i].Name, in.name, err),
				Remedy:  "use a subscriber that keeps order, such as stream.PartitionedSubscriber, or inbox.Middleware, which remembers ids",
			}
		}
	}
	return nil
}

func keepsOrder(s Subscriber) error {
	o, ok := s.(orderKeeper)
	if !ok {
		return fmt.Errorf("%T gives messages no position", s)
	}
	return o.Ordered()
}
