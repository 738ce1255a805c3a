// Package mark carries what one middleware must know of another that stands around it.
package mark

import "context"

type setNX struct{}

// WithSetNX returns a context that says: a SetNX inbox stands around.
func WithSetNX(ctx context.Context) context.Context { return context.WithValue(ctx, setNX{}, true) }

// SetNX reports whether one does.
func SetNX(ctx context.Context) bool {
	marked, _ := ctx.Value(setNX{}).(bool)
	return marked
}
