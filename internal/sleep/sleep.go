// Package sleep waits under a context.
package sleep

import (
	"context"
	"time"
)

// For waits for d. It returns false as soon as ctx ends.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}
