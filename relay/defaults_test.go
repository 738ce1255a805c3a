package relay

import (
	"testing"

	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults(1))
	documented.Defaults(t, DriveConfig{}.withDefaults())
	documented.Defaults(t, HTTPConfig{}.withDefaults())
	documented.Defaults(t, LimitConfig{}.withDefaults())
	documented.Defaults(t, FuncConfig{}.withDefaults())
}

func TestConfigsRejectValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, Config{}, func(c Config) error { return c.withDefaults(1).validate() })
	documented.Bounds(t, DriveConfig{}, DriveConfig.validate)
	documented.Bounds(t, HTTPConfig{URL: "http://shop"}, HTTPConfig.validate)
	documented.Bounds(t, LimitConfig{Concurrency: 1}, LimitConfig.validate)
}
