// Package observe tells observers, which are functions of their users, what has happened.
package observe

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Tell calls f, where there is one. A panic in it ends there, and is logged.
func Tell[T any](ctx context.Context, log *slog.Logger, f func(context.Context, T), fact T) {
	if f == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			log.Error("luatx: observer panicked", "error", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	f(ctx, fact)
}

// Both calls two functions, the second one where the first panics too.
func Both[T any](first, second func(context.Context, T)) func(context.Context, T) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, fact T) {
		defer second(ctx, fact)
		first(ctx, fact)
	}
}
