package ground

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Effect is the effect of an applied id, which a field of Branch.Effects holds as text.
type Effect struct {
	Kind     string // Move, Send, Credit or Order
	From, To string // accounts, or for an order its product
	Amount   int64
	Event    string // the id of the event that was committed with it
	Lane     string // lane of the event, or NoLane
	N        int64  // the event's number in its lane
}

// Kinds of effects.
const (
	Move   = "move"   // between two accounts of a branch
	Send   = "send"   // from an account to another branch, by the event
	Credit = "credit" // the money arrives at the other branch
	Order  = "order"  // units of a product leave the stock
)

// EventID returns the id of an event. Half of the events keep the derived id. The others get an id of their own, which the
// outbox remembers after it has sent the event.
func EventID(derived string) string {
	if derived < "8" {
		return own + derived
	}
	return derived
}

// own is the prefix of ids that are not derived.
const own = "own-"

// IsRemembered reports whether the outbox remembers an event after it has sent it.
func IsRemembered(event string) bool { return strings.HasPrefix(event, own) }

// NoLane is the lane of an event without an ordering key.
const NoLane = "-"

// String returns the text that ParseEffect parses.
func (e Effect) String() string {
	return fmt.Sprintf("%s %s %s %d %s %s %d", e.Kind, e.From, e.To, e.Amount, e.Event, e.Lane, e.N)
}

// ParseEffect parses an effect.
func ParseEffect(text string) (Effect, error) {
	f := strings.Fields(text)
	if len(f) != 7 {
		return Effect{}, fmt.Errorf("effect %q has %d fields", text, len(f))
	}
	amount, err := strconv.ParseInt(f[3], 10, 64)
	n, wrong := strconv.ParseInt(f[6], 10, 64)
	if err := errors.Join(err, wrong); err != nil {
		return Effect{}, fmt.Errorf("effect %q: %w", text, err)
	}
	return Effect{Kind: f[0], From: f[1], To: f[2], Amount: amount, Event: f[4], Lane: f[5], N: n}, nil
}

// FieldStumbles is the field of a step that states whether it fails for good.
const FieldStumbles = "ce_stumbles"
