package amqp

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, SubscriberConfig{}.withDefaults())
}

func TestConfigsRejectValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, SubscriberConfig{URL: "amqp://shop", Queue: "q"}, SubscriberConfig.validate)
}
