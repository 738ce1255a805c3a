package trigger

import (
	"context"
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
	"github.com/luatx/luatx/message"
)

// TestDocumentedDefaults holds each default that a comment names.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults())
}

// TestDocumentedBounds holds what comments say of the least and the most, and that nothing else is negative.
func TestDocumentedBounds(t *testing.T) {
	t.Parallel()
	run := func(context.Context, *message.RawMessage) error { return nil }
	documented.Bounds(t, Config{Function: "f", Run: run, Connector: Connector{URL: "redis://shop"}, Mode: ModeStream, Stream: "s", Group: "g"}, func(c Config) error { return c.Validate() })
}
