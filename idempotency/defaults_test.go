package idempotency

import (
	"net/http"
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
	scope := func(*http.Request) string { return "x" }
	aggregate := func(*http.Request) (string, error) { return "x", nil }
	documented.Bounds(t, Config{Aggregate: aggregate, Scope: scope}, Config.validate)
}
