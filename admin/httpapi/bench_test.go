package httpapi_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// parkThousands parks n thousand events of a name in all shards, the last hundred of a class and a type of their own.
func parkThousands(t testing.TB, tr *luatx.Transactor, name string, n int) {
	t.Helper()
	for i := range n {
		ids := make([]string, 1000)
		for j := range ids {
			ids[j] = fmt.Sprintf("%s-%d-%d", name, i, j)
		}
		rare := 0
		if i == n-1 {
			rare = 100
		}
		admintest.Park(t, tr, fmt.Sprint("a", i), "http_422", "sold", ids[rare:]...)
		if rare > 0 {
			admintest.Park(t, tr, fmt.Sprint("a", i), "rare", "paid", ids[:rare]...)
		}
	}
}

// counting counts what is asked through a client, and what of it reads without bounds.
type counting struct{ all, unbounded atomic.Int64 }

func (c *counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.count(cmd)
		}
		return next(ctx, cmds)
	}
}

func (c *counting) count(cmd redis.Cmder) {
	if rig.OfConnecting(cmd) {
		return
	}
	c.all.Add(1)
	switch strings.ToLower(cmd.Name()) {
	case "keys", "smembers", "hkeys", "hvals", "scan":
		c.unbounded.Add(1)
	}
}

func TestPagesAndNumbersCostNoMoreWhenMoreIsParked(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	client := redistest.Shared(t).Client(t)
	tr, _ := admintest.Service(t, client, 4)
	var c counting
	client.AddHook(&c)
	cost := func(target string) int64 {
		t.Helper()
		least := int64(math.MaxInt64)
		for range 3 { // the first may load scripts, and a wake-up of the commits before goes out on its own
			_, h := handlerOf(t, tr, client, httpapi.Config{})
			c.all.Store(0)
			replied[any](t, h, http.MethodGet, target, "", http.StatusOK)
			least = min(least, c.all.Load())
		}
		return least
	}
	parkThousands(t, tr, "few", 8)
	targets := []string{"/api/stats", "/api/parked", "/api/parked?limit=10&class=http_422"}
	few := map[string]int64{}
	for _, target := range targets {
		few[target] = cost(target)
	}
	parkThousands(t, tr, "more", 8)
	for _, target := range targets {
		if many := cost(target); many > few[target] {
			t.Errorf("%s: %d commands, %d where more is parked", target, few[target], many)
		}
	}
	if n := c.unbounded.Load(); n > 0 {
		t.Errorf("%d commands without bounds", n)
	}
}

// BenchmarkHandler measures the numbers and first pages with 100,000 parked events.
func BenchmarkHandler(b *testing.B) {
	redistest.Need(b)
	client := redistest.Shared(b).Client(b)
	tr, _ := admintest.Service(b, client, 4)
	parkThousands(b, tr, "e", 100)
	for name, target := range map[string]string{
		"stats": "/api/stats", "page": "/api/parked", "class": "/api/parked?class=http_422", "rare": "/api/parked?class=rare", "type": "/api/parked?type=paid",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, h := handlerOf(b, tr, client, httpapi.Config{}) // of which nobody has asked yet
				replied[any](b, h, http.MethodGet, target, "", http.StatusOK)
			}
		})
	}
}
