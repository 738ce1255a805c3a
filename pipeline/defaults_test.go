package pipeline

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

// TestDocumentedDefaults holds each default that a comment names.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, SetNXConfig{}.withDefaults())
}
