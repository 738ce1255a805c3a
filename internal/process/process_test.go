package process_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newList(t *testing.T, client redis.UniversalClient) *process.List {
	t.Helper()
	return process.New(client, redistest.Namespace(t), slog.New(slog.DiscardHandler))
}

// all returns the listed processes.
func all(t *testing.T, list *process.List, kinds ...string) (entries []process.Entry) {
	t.Helper()
	for e, err := range list.All(redistest.Soon(t), kinds...) {
		redistest.Must(t, err)
		entries = append(entries, e)
	}
	return entries
}

// silent makes the last heartbeat of a process appear that long ago.
func silent(t *testing.T, client redis.UniversalClient, list *process.List, id string, long time.Duration) {
	t.Helper()
	ctx := redistest.Soon(t)
	now, err := client.Time(ctx).Result()
	redistest.Must(t, err, client.ZAdd(ctx, list.Keys()[2], redis.Z{Member: id, Score: float64(now.Add(-long).UnixMilli())}).Err())
}

func TestKeepListsAProcessUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		list := newList(t, client)
		ctx, stop := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		keeping.Go(func() {
			list.Keep(ctx, process.Consumer, func() process.Report {
				return process.Report{Stream: "orders", Group: "g", InFlight: 3, Counts: map[string]int64{"delivered": 7, "claimed": 0}}
			})
		})
		redistest.Eventually(t, "the process to register", func() bool { return len(all(t, list)) == 1 })
		e := all(t, list)[0]
		if e.Kind != "consumer" || e.PID != os.Getpid() || e.Host == "" || e.Version == "" || e.Dead || e.Since.IsZero() || e.Seen.Before(e.Since) {
			t.Errorf("%+v", e)
		}
		if _, zero := e.Counts["claimed"]; e.Stream != "orders" || e.Group != "g" || e.InFlight != 3 || e.Counts["delivered"] != 7 || zero {
			t.Errorf("%+v", e.Report)
		}
		stop()
		keeping.Wait()
		if left := all(t, list); len(left) > 0 {
			t.Errorf("after its end: %+v", left)
		}
		if n := client.Exists(t.Context(), list.Keys()[1:]...).Val(); n != 0 {
			t.Errorf("%d keys are left after its end", n)
		}
	})
}

// stopping ends a context as soon as a server has executed a command, and then fails if the command's own context has ended.
type stopping struct{ stop context.CancelFunc }

func (s stopping) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s stopping) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		s.stop()
		return errors.Join(err, ctx.Err())
	}
}

func (s stopping) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		s.stop()
		return errors.Join(err, ctx.Err())
	}
}

func TestKeepRemovesAProcessWhoseContextEndsDuringAHeartbeat(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		list := newList(t, client)
		redistest.Must(t, list.Beat(t.Context(), "relay-warm", process.Relay, process.Report{})) // the server knows the script now
		ctx, stop := context.WithCancel(t.Context())
		client.AddHook(stopping{stop})
		list.Keep(ctx, process.Consumer, func() process.Report { return process.Report{} })
		if left := all(t, list, process.Consumer); len(left) > 0 {
			t.Errorf("a process that has stopped is still listed: %+v", left)
		}
	})
}

func TestKeepRenewsTheHeartbeatAndTheReport(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	list := newList(t, client)
	list.Interval = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	var keeping sync.WaitGroup
	n := int64(0)
	keeping.Go(func() {
		list.Keep(ctx, process.Relay, func() process.Report { n++; return process.Report{InFlight: n} })
	})
	var first process.Entry
	redistest.Eventually(t, "a later heartbeat", func() bool {
		now := all(t, list)
		if len(now) == 0 {
			return false
		}
		if first.ID == "" {
			first = now[0]
		}
		return now[0].InFlight > first.InFlight && now[0].Seen.After(first.Seen) && now[0].Since.Equal(first.Since)
	})
	stop()
	keeping.Wait()
}

func TestProcessWithoutHeartbeatIsDeadThenForgotten(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, list := redistest.Soon(t), newList(t, client)
		redistest.Must(t, list.Beat(ctx, "relay-a", process.Relay, process.Report{}))
		for _, step := range []struct {
			silence      time.Duration
			listed, dead bool
		}{{29 * time.Second, true, false}, {31 * time.Second, true, true}, {59 * time.Minute, true, true}, {61 * time.Minute, false, false}} {
			silent(t, client, list, "relay-a", step.silence)
			now := all(t, list)
			if listed := len(now) == 1; listed != step.listed || listed && now[0].Dead != step.dead {
				t.Errorf("silent for %v: %+v", step.silence, now)
			}
		}
		redistest.Must(t, list.Beat(ctx, "relay-b", process.Relay, process.Report{})) // removes forgotten processes
		kept, err := client.HKeys(ctx, list.Keys()[1]).Result()
		if err != nil || !slices.Equal(kept, []string{"relay-b"}) {
			t.Errorf("kept: %v, %v", kept, err)
		}
	})
}

func TestFullListDropsTheOldestHeartbeat(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, list := redistest.Soon(t), newList(t, client)
		list.SetMost(2)
		for i, id := range []string{"relay-a", "relay-b", "relay-c"} {
			redistest.Must(t, list.Beat(ctx, id, process.Relay, process.Report{}))
			silent(t, client, list, id, time.Duration(10-i)*time.Second)
		}
		var ids []string
		for _, e := range all(t, list) {
			ids = append(ids, e.ID)
		}
		if !slices.Equal(ids, []string{"relay-b", "relay-c"}) {
			t.Errorf("listed: %v", ids)
		}
	})
}

func TestAllListsOnlyTheRequestedKinds(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, list := redistest.Soon(t), newList(t, client)
		for _, kind := range []string{process.Relay, process.Repair, process.Timers} {
			redistest.Must(t, list.Beat(ctx, kind+"-a", kind, process.Report{}))
		}
		var kinds []string
		for _, e := range all(t, list, process.Timers, process.Relay) {
			kinds = append(kinds, e.Kind)
		}
		if !slices.Equal(kinds, []string{"relay", "timers"}) {
			t.Errorf("listed: %v", kinds)
		}
	})
}

// lines stores log lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestDeniedHeartbeatIsLoggedOnceAndStopsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", "poor", "on", ">secret", "~*", "+@all", "-zadd").Err())
	log := &lines{}
	list := process.New(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "poor", "secret" }),
		redistest.Namespace(t), slog.New(slog.NewTextHandler(log, nil)))
	list.Interval = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	reports := make(chan struct{}, 100)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		list.Keep(ctx, process.Relay, func() process.Report { reports <- struct{}{}; return process.Report{} })
	})
	redistest.Eventually(t, "the log to say so", func() bool { return strings.Contains(log.text(), "process registration failed") })
	stop()
	keeping.Wait()
	if n := len(reports); n != 1 || strings.Count(log.text(), "\n") != 1 {
		t.Errorf("%d heartbeats, log:\n%s", n, log.text())
	}
}

func TestNilListRegistersNoProcess(t *testing.T) {
	t.Parallel()
	var list *process.List
	list.Keep(t.Context(), process.Relay, nil)
}

func TestHeartbeatForgetsFourProcessesThatAreSilentForMoreThanAnHour(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	now := time.UnixMilli(1_700_000_000_000)
	server.SetTime(now)
	list, ctx := newList(t, client), t.Context()
	for i, hours := range []int{3, 3, 3, 3, 3, 2, 1} {
		id := "relay-" + string(rune('a'+i))
		redistest.Must(t, client.ZAdd(ctx, list.Keys()[2], redis.Z{Member: id, Score: float64(now.Add(time.Duration(-hours) * time.Hour).UnixMilli())}).Err(),
			client.HSet(ctx, list.Keys()[1], id, "1 {}").Err())
	}
	for _, want := range [][]string{{"relay-e", "relay-f", "relay-g", "relay-z"}, {"relay-g", "relay-z"}} {
		redistest.Must(t, list.Beat(ctx, "relay-z", process.Relay, process.Report{}))
		kept := client.HKeys(ctx, list.Keys()[1]).Val()
		slices.Sort(kept)
		if beats := client.ZCard(ctx, list.Keys()[2]).Val(); !slices.Equal(kept, want) || beats != int64(len(want)) {
			t.Errorf("kept %v, want %v, and %d heartbeats", kept, want, beats)
		}
	}
}
