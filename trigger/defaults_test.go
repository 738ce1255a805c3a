package trigger

import (
	"context"
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
	"github.com/luatx/luatx/message"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults())
}

func TestConfigsRejectValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	run := func(context.Context, *message.RawMessage) error { return nil }
	documented.Bounds(t, Config{Function: "f", Run: run, Connector: Connector{URL: "redis://shop"}, Mode: ModeStream, Stream: "s", Group: "g"}, func(c Config) error { return c.Validate() })
}
