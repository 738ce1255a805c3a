package sqltx

import (
	"database/sql"
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

// TestDocumentedDefaults holds each default that a comment names.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, OutboxPublisherConfig{}.withDefaults())
	documented.Defaults(t, CleanupConfig{}.withDefaults())
}

// TestDocumentedBounds holds what comments say of the least and the most, and that nothing else is negative.
func TestDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, OutboxPublisherConfig{DB: new(sql.DB)}, func(c OutboxPublisherConfig) error { return c.withDefaults().validate() })
	documented.Bounds(t, CleanupConfig{DB: new(sql.DB)}, func(c CleanupConfig) error { return c.withDefaults().validate() })
}
