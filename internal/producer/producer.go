// Package producer passes the producers of events in a context. A Redis stream uses the producer and the id of an event to detect that
// a relay publishes the event again.
package producer

import (
	"context"
	"time"

	"github.com/luatx/luatx/message"
)

// Naming names the producers of events. Together with its id, the producer of an event identifies it.
type Naming struct {
	// Of returns the producer of an event. It returns "" for a message that the relay did not pass, such as a copy.
	Of func(event *message.RawMessage) string
	// Unique is how long an id stands for one event. Later, another event may have the same id.
	Unique time.Duration
}

type key struct{}

// With returns a context that carries the naming.
func With(ctx context.Context, n Naming) context.Context { return context.WithValue(ctx, key{}, n) }

// Of returns the producer of an event. It returns "" if the context has none, or if another event may get the same id within d.
func Of(ctx context.Context, event *message.RawMessage, d time.Duration) string {
	n, ok := ctx.Value(key{}).(Naming)
	if !ok || n.Unique < d {
		return ""
	}
	return n.Of(event)
}
