package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// fillServer commits events, every third one ordered, until the server rejects a commit because its memory is full. Then it
// lowers the limit of each node below the memory in use, so that no write succeeds by luck. It returns the number of
// waiting events.
func fillServer(t *testing.T, tr *luatx.Transactor, nodes ...*redis.Client) (events int) {
	t.Helper()
	payload := strings.Repeat("x", 4<<10)
	for {
		aggregate := "a" + strconv.Itoa(events%50)
		err := commitEvent(redistest.Soon(t), tr, aggregate, events, payload)
		if errors.Is(err, &luatx.RefusedError{Code: "OOM"}) {
			break
		}
		redistest.Must(t, err)
		events++
	}
	for _, node := range nodes {
		lowerLimit(t, node)
	}
	return events
}

func commitEvent(ctx context.Context, tr *luatx.Transactor, aggregate string, n int, payload string) error {
	_, err := tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
		event := luatx.Event{ID: fmt.Sprintf("e%d", n), Body: fmt.Appendf(nil, `{"specversion":"1.0","id":"e%d","type":"t","source":"/s","data":%q}`, n, payload)}
		if n%3 == 0 {
			event.Key = aggregate
		}
		return tx.Emit(event)
	}, luatx.WithID("commit-"+strconv.Itoa(n)))
	return err
}

func usedMemory(t testing.TB, node *redis.Client) int {
	t.Helper()
	info, err := node.Info(t.Context(), "memory").Result()
	redistest.Must(t, err)
	for line := range strings.Lines(info) {
		if used, ok := strings.CutPrefix(line, "used_memory:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(used))
			redistest.Must(t, err)
			return n
		}
	}
	t.Fatal("INFO memory has no used_memory")
	return 0
}

func lowerLimit(t testing.TB, node *redis.Client) {
	t.Helper()
	redistest.Must(t, redistest.AsAdmin(t, node).ConfigSet(t.Context(), "maxmemory", strconv.Itoa(usedMemory(t, node)*9/10)).Err())
}

// drains starts a relay on a full server, and waits until it has published everything and commits succeed again.
func drains(t *testing.T, tr *luatx.Transactor, events int, cfg relay.Config) {
	t.Helper()
	if err := commitEvent(redistest.Soon(t), tr, "refused", events, ""); !errors.Is(err, &luatx.RefusedError{Code: "OOM"}) {
		t.Fatalf("a commit on the full server returned %v, want OOM", err)
	}
	var published atomic.Int64
	var failed atomic.Bool
	publisher := relay.PublisherFunc(func(_ context.Context, batch []*message.RawMessage) []error {
		if failed.CompareAndSwap(false, true) { // a failure must be settled on a full server, too
			errs := make([]error, len(batch))
			errs[0] = errors.New("once")
			published.Add(int64(len(batch) - 1))
			return errs
		}
		published.Add(int64(len(batch)))
		return nil
	})
	var log rig.Lines
	cfg.SweepInterval, cfg.BackoffBase, cfg.BackoffCap, cfg.Logger = 10*time.Millisecond, time.Millisecond, 10*time.Millisecond, log.Logger()
	start(t, tr, publisher, cfg)
	redistest.Eventually(t, "the relay publishes the backlog", func() bool {
		return published.Load() >= int64(events) || t.Failed()
	})
	redistest.Eventually(t, "commits succeed again", func() bool {
		return commitEvent(redistest.Soon(t), tr, "after", events+1, "") == nil
	})
	if line := refusedScript(log.String()); line != "" {
		t.Errorf("the server refused a script of the relay: %s", line)
	}
}

// refusedScript returns the first line of a log that says OOM. The newest servers reject subscriptions, too; then the sweep
// finds the events.
func refusedScript(log string) string {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "OOM") && !strings.Contains(line, "wake-up subscription failed") {
			return line
		}
	}
	return ""
}

func TestRelayDrainsServerAtMaxmemory(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]relay.Config{
		"plain":          {},
		"forgotten":      {SentRetention: -1},
		"lane continues": {OnPark: relay.LaneContinues, BatchSize: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t, redistest.Own(), redistest.Config("maxmemory 6mb", "maxmemory-policy noeviction"))
			tr := newTransactor(t, server.Client(t))
			drains(t, tr, fillServer(t, tr, server.Client(t)), cfg)
		})
	}
}

func TestRelayDrainsClusterAtMaxmemory(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t, redistest.Config("maxmemory 12mb", "maxmemory-policy noeviction"))
	client := cluster.Client(t)
	tr := newTransactor(t, client, func(cfg *luatx.Config) { cfg.Keyspace = luatx.Partitions(48) })
	var masters []*redis.Client
	for _, addr := range cluster.Addrs() {
		node := redistest.Client(t, addr)
		if info := node.Info(t.Context(), "replication").Val(); strings.Contains(info, "role:master") {
			masters = append(masters, node)
		}
	}
	drains(t, tr, fillServer(t, tr, masters...), relay.Config{})
}
