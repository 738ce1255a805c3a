package outbox

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, RearmOptions{}.withDefaults())
}

func TestConfigsRejectValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, RearmOptions{}, RearmOptions.Validate)
}
