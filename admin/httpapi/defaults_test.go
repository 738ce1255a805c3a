package httpapi

import (
	"net/http"
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

// TestDocumentedDefaults checks each default that a comment states.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults("shop"))
}

// TestDocumentedBounds checks the minimums and maximums that comments state, and that no other field accepts a negative
// value.
func TestDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, Config{Authorize: func(*http.Request) (Identity, error) { return Identity{}, nil }}, func(c Config) error { return c.withDefaults("shop").validate() })
}
