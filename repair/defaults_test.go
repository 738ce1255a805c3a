package repair

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

// TestDocumentedDefaults holds each default that a comment names.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults())
}

// TestDocumentedBounds holds what comments say of the least and the most, and that nothing else is negative.
func TestDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, Config{}, func(c Config) error { return c.withDefaults().validate() })
}
