package httpapi_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/outbox"
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

// counting counts the commands of a client, and the unbounded reads among them.
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
	case "keys", "smembers", "hkeys", "hvals", "lrange", "scan":
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
			t.Errorf("%s: %d commands, but %d with more parked events", target, few[target], many)
		}
	}
	if n := c.unbounded.Load(); n > 0 {
		t.Errorf("%d unbounded commands", n)
	}
}

func TestNoRouteRunsACommandWithoutBounds(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	client := redistest.Shared(t).Client(t)
	w := newWard(t, client, httpapi.Config{})
	var c counting
	client.AddHook(&c)
	for route, tries := range w.tries() {
		for _, try := range tries {
			w.ask(t, route, try)
		}
		if n := c.unbounded.Swap(0); n > 0 {
			t.Errorf("%s: %d unbounded commands", route, n)
		}
	}
	if c.all.Load() < 100 {
		t.Errorf("only %d commands were seen", c.all.Load())
	}
}

// loaded returns the handler of a service with n events in all states, and lists to measure by name.
func loaded(t testing.TB, n int) (redis.UniversalClient, func() *httpapi.Handler, map[string]string) {
	t.Helper()
	client, tr, _, stream := admintest.Loaded(t, n)
	named := "?stream=" + url.QueryEscape(stream)
	lists := map[string]string{
		"stats": "stats", "parked": "parked", "class": "parked?class=http_422", "rare class": "parked?class=none", "type": "parked?type=none", "destination": "parked?destination=ledger",
		"blocked": "blocked", "blocked key": "blocked?key=none", "event": "find?id=parked-bank-7-7", "dead": "dead" + named, "dead text": "dead" + named + "&text=none",
		"timers": "timers", "due timers": "timers?due=1", "timers text": "timers?text=none", "processes": "processes", "streams": "streams?key=" + url.QueryEscape(stream), "audit": "audit",
	}
	for _, state := range outbox.States() {
		lists[string(state)] = "events?state=" + string(state)
		lists[string(state)+" of no type"] = "events?type=none&state=" + string(state)
	}
	return client, func() *httpapi.Handler { // of which nobody has asked yet
		_, h := handlerOf(t, tr, client, httpapi.Config{})
		return h
	}, lists
}

func TestListsCostLessThan200MillisecondsAt100000Events(t *testing.T) {
	if os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("LUATX_VERIFY=1 measures the lists")
	}
	client, fresh, lists := loaded(t, 100_000)
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		cost := admintest.CPU(t, client, func() { replied[any](t, fresh(), http.MethodGet, "/api/"+lists[name], "", http.StatusOK) })
		if t.Logf("%-20s %v", name, cost.Round(100*time.Microsecond)); cost > 200*time.Millisecond {
			t.Errorf("%s costs %v", name, cost)
		}
	}
}

func BenchmarkHandler(b *testing.B) {
	_, fresh, lists := loaded(b, 100_000)
	for name, target := range lists {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				replied[any](b, fresh(), http.MethodGet, "/api/"+target, "", http.StatusOK)
			}
		})
	}
}
