package console_test

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
)

// loaded returns the operator of a service with n events in all states, and the pages to measure by name.
func loaded(t testing.TB, n int) (redis.UniversalClient, *admin.Operator, map[string]string) {
	t.Helper()
	client, _, op, stream := admintest.Loaded(t, n)
	named := "?stream=" + url.QueryEscape(stream)
	pages := map[string]string{
		"overview": "", "parked": "parked", "class": "parked?class=http_422", "destination": "parked?destination=ledger", "rare": "parked?class=none", "text": "parked?text=postcode",
		"blocked": "blocked", "blocked key": "blocked?key=customer-7", "event": "event?id=parked-bank-7-7", "waiting": "event?id=behind-7-7-7",
		"dead": "dead" + named, "dead text": "dead" + named + "&text=none", "preview dead": "preview-retry-dead" + named,
		"timers": "timers", "timers due": "timers?state=due", "timers text": "timers?text=none", "processes": "processes", "streams": "streams?key=" + url.QueryEscape(stream), "audit": "audit",
	}
	for _, state := range []string{"pending", "retrying", "scheduled", "leased", "waiting", "parked", "sent"} {
		pages[state] = "events?state=" + state
		pages[state+" of a type"] = "events?state=" + state + "&type=none"
	}
	return client, op, pages
}

func BenchmarkConsole(b *testing.B) {
	_, op, pages := loaded(b, 100_000)
	for name, to := range pages {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s := newSite(b, op, nil) // without cached numbers
				if status, page := s.get(b, to); status >= 400 || status == http.StatusOK && !strings.Contains(page, "<main") {
					b.Fatalf("%s: status %d", to, status)
				}
			}
		})
	}
}

// soon is the maximum CPU time of a page with 100,000 events.
const soon = 200 * time.Millisecond

func TestPagesTakeLessThan200MillisecondsOfCPUTimeAt100000Events(t *testing.T) {
	if os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("set LUATX_VERIFY=1 to measure the pages")
	}
	client, op, pages := loaded(t, 100_000)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		cost := admintest.CPU(t, client, func() {
			if status, _ := newSite(t, op, nil).get(t, pages[name]); status >= 400 {
				t.Fatalf("%s: status %d", name, status)
			}
		})
		if t.Logf("%-20s %v", name, cost.Round(100*time.Microsecond)); cost > soon {
			t.Errorf("%s takes %v of CPU time, want at most %v", name, cost, soon)
		}
	}
}
