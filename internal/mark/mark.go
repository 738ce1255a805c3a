// Package mark carries in a context what one middleware must know of another that stands around it.
package mark

import "context"

// Kind is a middleware that has left its mark.
type Kind int

// The middlewares whose place others look at.
const (
	SetNX Kind = iota
	Overlap
	Inbox
	Outbox
)

// SetNXName is the name of pipeline.SetNX among the traits of a Router's middlewares.
const SetNXName = "pipeline.SetNX"

// With returns a context that says: a middleware of this kind stands around.
func With(ctx context.Context, kind Kind) context.Context { return context.WithValue(ctx, kind, true) }

// In reports whether one does.
func In(ctx context.Context, kind Kind) bool { return ctx.Value(kind) != nil }
