package history_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/test/redistest"
)

// budget is the maximum memory that the history of a namespace may use, in bytes.
const budget = 5_000_000

// crowd adds more destinations and classes to the current interval than the interval has room for, each with large
// numbers.
func crowd(t testing.TB, h *history.History, length int) {
	t.Helper()
	pairs := history.Gauges{
		Oldest: 30 * 24 * time.Hour, Events: 1e9, Bytes: 1e12, Parked: 1e9, Blocked: 1e9, Full: 100, Enqueued: 1e14,
	}.Pairs()
	for i := range 100 {
		name := fmt.Sprintf("%0*d", length, i)
		pairs = append(pairs, "d:"+name, "9999999 9999999 9999999 9999999", "c:"+name, 9_999_999)
	}
	_, err := h.Write(redistest.Soon(t), 0, append(pairs, "d", "9999999 9999999 9999999 9999999", "c", 9_999_999)...)
	redistest.Must(t, err)
}

// fullInterval fills the current interval and returns it with its dump. If it ends meanwhile, the next one is filled.
func fullInterval(t testing.TB, client *redis.Client, h *history.History, r history.Resolution, length int) (time.Time, string) {
	t.Helper()
	for {
		crowd(t, h, length)
		now, err := h.Now(redistest.Soon(t))
		redistest.Must(t, err)
		whole, err := client.Dump(redistest.Soon(t), h.IntervalKey(r, now)).Result()
		if !errors.Is(err, redis.Nil) {
			redistest.Must(t, err)
			return now, whole
		}
	}
}

func TestFullHistoryTakesLessThan5MB(t *testing.T) {
	t.Parallel()
	for _, length := range []int{6, 20, 60} {
		t.Run(strconv.Itoa(length), func(t *testing.T) {
			t.Parallel()
			client := redistest.Single(t, redistest.Own()).Client(t)
			ctx, h := redistest.Soon(t), newHistory(t, client, strings.Repeat("n", 64))
			before := used(t, client)
			intervals := 0
			for _, r := range []history.Resolution{history.Fine(), history.Coarse()} {
				now, whole := fullInterval(t, client, h, r, length)
				key := h.IntervalKey(r, now)
				if ttl := client.PTTL(ctx, key).Val(); ttl <= 0 || ttl > r.Keep+r.Step {
					t.Errorf("%v: the interval expires in %v", r, ttl)
				}
				for at := now; at.After(now.Add(-r.Keep - r.Step)); at = at.Add(-r.Step) {
					redistest.Must(t, client.RestoreReplace(ctx, h.IntervalKey(r, at), r.Keep, whole).Err())
					intervals++
				}
			}
			grown := used(t, client) - before
			t.Logf("%d intervals with names of %d bytes take %d bytes", intervals, length, grown)
			if intervals < 3240 || grown > budget {
				t.Errorf("%d intervals take %d bytes, want at most %d", intervals, grown, budget)
			}
			got := sums(t, h, history.Coarse())
			t.Logf("an interval names %d destinations and %d classes", len(got.Destinations), len(got.Classes))
		})
	}
}

// used returns the memory that a server uses, in bytes, without the memory of its clients.
func used(t testing.TB, client *redis.Client) int {
	t.Helper()
	stats := map[string]int{}
	info, err := client.Info(redistest.Soon(t), "memory").Result()
	redistest.Must(t, err)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		stats[name], _ = strconv.Atoi(value)
	}
	return stats["used_memory"] - stats["mem_clients_normal"]
}
