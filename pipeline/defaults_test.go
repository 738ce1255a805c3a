package pipeline

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

// TestDocumentedDefaults checks each default that a comment states.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, SetNXConfig{}.withDefaults())
}
