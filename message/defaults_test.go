package message

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestPipeConfigHasTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, PipeConfig{}.withDefaults())
}

func TestPipeConfigRejectsValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, PipeConfig{}, func(c PipeConfig) error { return c.withDefaults().validate() })
}
