// Package mark stores in a context which middlewares surround the current one.
package mark

import "context"

// Kind is a kind of middleware that marks its context.
type Kind int

// The middlewares whose position others check.
const (
	SetNX Kind = iota
	Overlap
	Inbox
	Outbox
)

// SetNXName is the name of pipeline.SetNX among the traits of a Router's middlewares.
const SetNXName = "pipeline.SetNX"

// With returns a copy of ctx that marks a surrounding middleware of the kind.
func With(ctx context.Context, kind Kind) context.Context { return context.WithValue(ctx, kind, true) }

// In reports whether a middleware of the kind surrounds the current one.
func In(ctx context.Context, kind Kind) bool { return ctx.Value(kind) != nil }
