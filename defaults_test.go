package luatx

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

// TestDocumentedDefaults checks each default that a comment states.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults())
}

// TestDocumentedBounds checks the minimums and maximums in comments, and that other fields reject negative values.
func TestDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, Config{Namespace: "shop"}, func(c Config) error { return c.withDefaults().validate() })
}
