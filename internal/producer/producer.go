// Package producer carries in a context who has produced an event, so that a Redis stream can recognize an event that a relay
// publishes again.
package producer

import (
	"context"
	"time"

	"github.com/luatx/luatx/message"
)

// Naming names the producers of events. Together with its id, the producer of an event identifies it.
type Naming struct {
	// Of returns the producer of an event; empty for a message that is not one of the relay's, such as a copy.
	Of func(event *message.RawMessage) string
	// Unique is how long an id means one event: after it another event may have the same id.
	Unique time.Duration
}

type key struct{}

// With returns a context that carries the naming.
func With(ctx context.Context, n Naming) context.Context { return context.WithValue(ctx, key{}, n) }

// Of returns the producer of an event whose id means no other event for the time d; empty if that is unknown.
func Of(ctx context.Context, event *message.RawMessage, d time.Duration) string {
	n, ok := ctx.Value(key{}).(Naming)
	if !ok || n.Unique < d {
		return ""
	}
	return n.Of(event)
}
