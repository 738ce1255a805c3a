package stream

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, SubscriberConfig{}.withDefaults())
	documented.Defaults(t, PublisherConfig{}.withDefaults())
	documented.Defaults(t, PartitionedConfig{}.withDefaults())
}

func TestConfigsRejectValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, SubscriberConfig{Stream: "s", Group: "g"}, func(c SubscriberConfig) error { return c.withDefaults().validate() })
	documented.Bounds(t, PublisherConfig{Stream: "s"}, PublisherConfig.validate)
	documented.Bounds(t, PartitionedConfig{}, func(c PartitionedConfig) error { return c.withDefaults().validate() })
}
