package httpapi

import (
	"net/http"
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigHasTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults("shop"))
}

func TestConfigRejectsValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, Config{Authorize: func(*http.Request) (Identity, error) { return Identity{}, nil }}, func(c Config) error { return c.withDefaults("shop").validate() })
}
