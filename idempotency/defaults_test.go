package idempotency

import (
	"net/http"
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigHasTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults())
}

func TestConfigRejectsValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	scope := func(*http.Request) string { return "x" }
	aggregate := func(*http.Request) (string, error) { return "x", nil }
	documented.Bounds(t, Config{Aggregate: aggregate, Scope: scope}, Config.validate)
}
