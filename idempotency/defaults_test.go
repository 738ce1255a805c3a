package idempotency

import (
	"net/http"
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
	scope := func(*http.Request) string { return "x" }
	aggregate := func(*http.Request) (string, error) { return "x", nil }
	documented.Bounds(t, Config{Aggregate: aggregate, Scope: scope}, Config.validate)
}
