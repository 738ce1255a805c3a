package redistest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// poll calls ready until it returns nil, and returns its last error when the context ends.
func poll(ctx context.Context, every time.Duration, ready func() error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last error
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if last == nil || !errors.Is(err, ctx.Err()) { // that the context ended says nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}
