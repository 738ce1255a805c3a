package pipeline

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, SetNXConfig{}.withDefaults())
}
