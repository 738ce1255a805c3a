package luatx

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigHasTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults())
}

func TestConfigRejectsValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, Config{Namespace: "shop"}, func(c Config) error { return c.withDefaults().validate() })
}
