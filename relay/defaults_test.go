package relay

import (
	"testing"
	"time"

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

func TestDefaultsThatFollowOtherFields(t *testing.T) {
	t.Parallel()
	for shards, want := range map[int]time.Duration{1: time.Second, 256: time.Second, 257: time.Minute, 16384: time.Minute} {
		if got := (Config{}).withDefaults(shards).SweepInterval; got != want {
			t.Errorf("the sweep of %d shards takes %v, want %v", shards, got, want)
		}
	}
	for lease, want := range map[time.Duration][2]time.Duration{
		30 * time.Second:        {20 * time.Second, time.Second},
		1500 * time.Millisecond: {time.Second, 500 * time.Millisecond},
	} {
		c := Config{Lease: lease, Barrier: Barrier{Replicas: 1}}.withDefaults(1)
		if got := [2]time.Duration{c.PublishTimeout, c.Barrier.Timeout}; got != want || c.validate() != nil {
			t.Errorf("a lease of %v has the timeouts %v, want %v (%v)", lease, got, want, c.validate())
		}
	}
	for _, want := range []LimitConfig{
		{Rate: 0.5, Batch: 100, Burst: 1},
		{Rate: 19, Batch: 100, Burst: 1},
		{Rate: 2500, Batch: 100, Burst: 250},
		{Concurrency: 2, Batch: 1, Burst: 1},
		{Concurrency: 2, Rate: 30, Batch: 1, Burst: 3},
	} {
		if got := (LimitConfig{Rate: want.Rate, Concurrency: want.Concurrency}).withDefaults(); got.Batch != want.Batch || got.Burst != want.Burst {
			t.Errorf("a rate of %v in %d calls has batches of %d and a burst of %d, want %d and %d", want.Rate, want.Concurrency, got.Batch, got.Burst, want.Batch, want.Burst)
		}
	}
}
