package prometheus

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, OutboxConfig{}.withDefaults())
}

func TestConfigsRejectValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, OutboxConfig{Namespace: "shop"}, func(c OutboxConfig) error { return c.withDefaults().validate() })
}
