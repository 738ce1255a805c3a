package stream_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/redistest"
)

func (f *fixture) consumers(t *testing.T) []string {
	t.Helper()
	all, err := f.client.XInfoConsumers(t.Context(), f.key, "shop").Result()
	redistest.Must(t, err)
	names := []string{}
	for _, c := range all {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}

// TestIdleConsumersAreRemoved checks that consumers of crashed processes leave the group when nothing is pending for them,
// and not before. (miniredis does not record when a consumer reads.)
func TestIdleConsumersAreRemoved(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(*testing.T) redis.UniversalClient{
		"redis":   func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.Shared(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.SharedCluster(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, client(t))
			f.add(t, "a")
			f.takeAs(t, "dead", 1)
			redistest.Must(t, f.client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "shop", Consumer: "idle", Streams: []string{f.key, "0"}}).Err())
			cfg := f.config()
			cfg.Consumer, cfg.MaxIdleTime = "me", 20*time.Millisecond
			sub := f.subscribe(t, cfg)
			msg := sub.next(t) // claimed from the dead one
			eventually(t, func() bool { return sub.Stats().Dismissed == 2 }, func() string {
				return "the idle ones are still there"
			})
			msg.Ack()
			if got := f.consumers(t); !slices.Equal(got, []string{"me"}) {
				t.Errorf("consumers are %q", got)
			}
		})
	}
}

func TestIdleConsumerWithPendingEntriesStays(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a", "b")
	f.takeAs(t, "slow", 1)
	redistest.Must(t, f.client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "shop", Consumer: "idle", Streams: []string{f.key, "0"}}).Err())
	gone, err := f.client.Eval(t.Context(), lua.Script("dismiss", nil), []string{f.key}, "shop", "me", -1).Int()
	redistest.Must(t, err)
	if got := f.consumers(t); gone != 1 || !slices.Equal(got, []string{"me", "slow"}) {
		t.Errorf("%d were removed, left %q", gone, got)
	}
	f.wantPending(t, 1)
}

func TestConsumerOfAQuietStreamStays(t *testing.T) {
	t.Parallel()
	f := shared(t)
	cfg := f.config()
	cfg.Consumer, cfg.MaxIdleTime = "quiet", 200*time.Millisecond
	quiet := f.subscribe(t, cfg)
	f.add(t, "a")
	quiet.next(t).Ack()
	cfg.Consumer = "me"
	sub := f.subscribe(t, cfg)
	begun := time.Now()
	eventually(t, func() bool { return time.Since(begun) > 15*cfg.MaxIdleTime }, func() string { return "" })
	if got := f.consumers(t); !slices.Equal(got, []string{"me", "quiet"}) || sub.Stats().Dismissed+quiet.Stats().Dismissed != 0 {
		t.Errorf("consumers are %q, want both", got)
	}
}

// TestConsumerIsIdleForLongerThanTheLimit uses miniredis, in which a consumer that has read nothing is always idle for -1 ms.
func TestConsumerIsIdleForLongerThanTheLimit(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx := redistest.Soon(t)
	redistest.Must(t, client.XGroupCreateMkStream(ctx, "s", "shop", "0").Err(), client.XGroupCreateConsumer(ctx, "s", "shop", "idle").Err())
	for _, c := range []struct{ limit, want int }{{-1, 0}, {-2, 1}} {
		gone, err := client.Eval(ctx, lua.Script("dismiss", nil), []string{"s"}, "shop", "me", c.limit).Int()
		redistest.Must(t, err)
		if gone != c.want {
			t.Errorf("%d consumers were idle for more than %d ms, want %d", gone, c.limit, c.want)
		}
	}
}
