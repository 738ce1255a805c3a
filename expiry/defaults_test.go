package expiry

import (
	"context"
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
	"github.com/luatx/luatx/message"
)

// TestDocumentedDefaults holds each default that a comment names.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, WorkerConfig{}.withDefaults(1))
}

// TestDocumentedBounds holds what comments say of the least and the most, and that nothing else is negative.
func TestDocumentedBounds(t *testing.T) {
	t.Parallel()
	event := func(context.Context, Timer) (*message.Message, error) { return nil, nil }
	documented.Bounds(t, WorkerConfig{Event: event}, func(c WorkerConfig) error { return c.withDefaults(1).validate() })
}
