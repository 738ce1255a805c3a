package stream

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

// TestDocumentedDefaults checks each default that a comment states.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, SubscriberConfig{}.withDefaults())
	documented.Defaults(t, PublisherConfig{}.withDefaults())
	documented.Defaults(t, PartitionedConfig{}.withDefaults())
}

// TestDocumentedBounds checks the minimums and maximums that comments state, and that no other field accepts a negative
// value.
func TestDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, SubscriberConfig{Stream: "s", Group: "g"}, func(c SubscriberConfig) error { return c.withDefaults().validate() })
	documented.Bounds(t, PublisherConfig{Stream: "s"}, PublisherConfig.validate)
	documented.Bounds(t, PartitionedConfig{}, func(c PartitionedConfig) error { return c.withDefaults().validate() })
}
