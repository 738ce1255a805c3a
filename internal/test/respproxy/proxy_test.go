package respproxy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
)

func TestMain(m *testing.M) { redistest.Main(m) }

type fixture struct {
	proxy   *respproxy.Proxy
	direct  *redis.Client // to the server
	proxied *redis.Client // through the proxy, without retries
	key     string
}

// setUp connects the proxied client before any rule is made.
func setUp(t *testing.T, change ...func(*redis.Options)) fixture {
	t.Helper()
	srv := redistest.Shared(t)
	f := fixture{proxy: redistest.Proxy(t, srv.Addr()), direct: srv.Client(t), key: redistest.Tag(t)}
	change = append([]func(*redis.Options){func(o *redis.Options) {
		o.MaxRetries, o.PoolSize, o.ContextTimeoutEnabled = -1, 1, true
	}}, change...)
	f.proxied = redistest.Client(t, f.proxy.Addr(), change...)
	redistest.Must(t, f.proxied.Ping(t.Context()).Err())
	t.Cleanup(func() { f.direct.Del(context.Background(), f.key) })
	return f
}

// value waits until the counter at the key has the value: the server may execute after the client was cut off.
func (f fixture) value(t *testing.T, want string) {
	t.Helper()
	redistest.Eventually(t, fmt.Sprintf("the server to have %q", want), func() bool { return f.direct.Get(t.Context(), f.key).Val() == want })
}

func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

func TestEachActionAffectsRequestAndReply(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		action   respproxy.Action
		executed string // the counter afterwards
		timeout  bool   // the client hears nothing; else it sees its connection end
	}{
		{"DropRequest", respproxy.DropRequest(), "", true},
		{"CutRequest", respproxy.CutRequest(), "", false},
		{"SplitRequest", respproxy.SplitRequest(), "", false},
		{"DropReply", respproxy.DropReply(), "1", true},
		{"CutReply", respproxy.CutReply(), "1", false},
		{"SplitReply", respproxy.SplitReply(), "1", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.proxy.Next(1, respproxy.Command("incr"), tt.action)
			ctx := t.Context()
			if tt.timeout {
				ctx = brief(t)
			}
			err := f.proxied.Incr(ctx, f.key).Err()
			if err == nil || timedOut(err) != tt.timeout {
				t.Errorf("the client received error %v, want a timeout: %v", err, tt.timeout)
			}
			f.value(t, tt.executed)
			redistest.Must(t, f.proxied.Incr(t.Context(), f.key).Err()) // on a new connection, the rule used up
			want := map[string]string{"": "1", "1": "2"}[tt.executed]
			f.value(t, want)
			assert.Equal(t, f.proxy.Count("INCR"), 2, "requests")
		})
	}
}

func TestDuplicateRunsTwiceAndRepliesOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.proxy.Next(1, respproxy.Command("INCR"), respproxy.Duplicate())
	n, err := f.proxied.Incr(t.Context(), f.key).Result()
	redistest.Must(t, err)
	assert.Equal(t, n, 1, "the reply to the client")
	if n, err = f.proxied.Incr(t.Context(), f.key).Result(); err != nil || n != 3 {
		t.Errorf("the next request on the connection returned %d, %v", n, err)
	}
}

func TestDelayPostponesTheReply(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.proxy.Next(1, respproxy.Command("INCR"), respproxy.Delay(50*time.Millisecond))
	start := time.Now()
	redistest.Must(t, f.proxied.Incr(t.Context(), f.key).Err())
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("the reply took %v", took)
	}
}

func TestHeldRequestArrivesAfterTheClientGaveUp(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	hold := f.proxy.Hold(respproxy.Command("INCR"))
	got := make(chan error, 1)
	go func() { got <- f.proxied.Incr(t.Context(), f.key).Err() }()
	redistest.Must(t, hold.Wait(t.Context()))
	redistest.Must(t, f.proxied.Close())
	if err := <-got; err == nil {
		t.Error("a client that had given up received a reply")
	}
	f.value(t, "")
	hold.Release()
	f.value(t, "1")
}

func TestReplyToAHeldRequestReachesAWaitingClient(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	hold := f.proxy.Hold(respproxy.Command("INCR"))
	got := make(chan error, 1)
	go func() { got <- f.proxied.Incr(t.Context(), f.key).Err() }()
	redistest.Must(t, hold.Wait(t.Context()))
	hold.Release()
	redistest.Must(t, <-got)
	assert.Is(t, respproxy.NewHold().Wait(brief(t)), context.DeadlineExceeded, "waiting for a hold that caught no request")
}

func TestCutPipelineLosesTheFollowingCommands(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.proxy.Next(1, respproxy.Containing("second"), respproxy.CutReply())
	pipe := f.proxied.Pipeline()
	pipe.Append(t.Context(), f.key, "a")
	second := pipe.Append(t.Context(), f.key, "second")
	_, err := pipe.Exec(t.Context())
	if err == nil || second.Err() == nil {
		t.Errorf("got %v, %v", err, second.Err())
	}
	f.value(t, "asecond")
}

func TestProxySeesAllCommandsInOrder(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ctx := t.Context()
	_, err := f.proxied.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, f.key, "a\r\n", 0)
		return pipe.Get(ctx, f.key).Err()
	})
	redistest.Must(t, err)
	want := [][]string{{"ping"}, {"multi"}, {"set", f.key, "a\r\n"}, {"get", f.key}, {"exec"}}
	if got := f.proxy.Commands(respproxy.Work); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if all := f.proxy.Count(); all != len(f.proxy.Commands()) || f.proxy.Count("Set", "GET") != 2 {
		t.Errorf("counts %d, %d of %q", all, f.proxy.Count("Set", "GET"), f.proxy.Commands())
	}
}

func TestProxyRecognizesConnectionSetup(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	if got := f.proxy.Commands(respproxy.Work); len(got) != 1 || got[0][0] != "ping" {
		t.Errorf("requests of a new connection: %q", got)
	}
	if f.proxy.Count("HELLO") == 0 {
		t.Errorf("HELLO is not among %q", f.proxy.Commands())
	}
}

func TestSubscriptionsPassThrough(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			t.Parallel()
			f := setUp(t, func(o *redis.Options) { o.Protocol = protocol })
			sub := f.proxied.Subscribe(t.Context(), f.key, f.key+"2")
			defer func() { redistest.Must(t, sub.Close()) }()
			for range 2 {
				redistest.Must(t, assert.ErrOf(sub.Receive(t.Context())))
			}
			redistest.Must(t, f.direct.Publish(t.Context(), f.key, "hello").Err())
			got, err := sub.ReceiveMessage(t.Context())
			redistest.Must(t, err)
			assert.Equal(t, got.Payload, "hello", "the payload")
		})
	}
}

func TestCutClosesConnections(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	assert.Equal(t, f.proxy.Connections(), 1, "connections")
	hold := f.proxy.Hold(respproxy.Command("ECHO"))
	got := make(chan error, 1)
	go func() { got <- f.proxied.Echo(t.Context(), "x").Err() }()
	redistest.Must(t, hold.Wait(t.Context()))
	f.proxy.CutAll()
	if err := <-got; err == nil || timedOut(err) {
		t.Errorf("a client that was cut off received %v", err)
	}
	hold.Release()
	redistest.Must(t, f.proxied.Ping(t.Context()).Err())
}

func TestDeadServerClosesConnections(t *testing.T) {
	t.Parallel()
	srv := redistest.Single(t, redistest.Own())
	proxy := redistest.Proxy(t, srv.Addr())
	client := redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.MaxRetries = -1 })
	redistest.Must(t, client.Ping(t.Context()).Err())
	redistest.Must(t, srv.Kill())
	if err := client.Ping(t.Context()).Err(); err == nil || timedOut(err) {
		t.Errorf("got %v", err)
	}
	redistest.Must(t, srv.Restart(t.Context()))
	redistest.Must(t, client.Ping(t.Context()).Err())
}

// TestCloseEndsHeldAndSilentConnections relies on goleak in TestMain.
func TestCloseEndsHeldAndSilentConnections(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(o *redis.Options) { o.PoolSize = 2 })
	hold := f.proxy.Hold(respproxy.Command("INCR"))
	f.proxy.Next(1, respproxy.Command("DECR"), respproxy.DropReply())
	errs := make(chan error, 2)
	go func() { errs <- f.proxied.Incr(t.Context(), f.key).Err() }()
	redistest.Must(t, hold.Wait(t.Context()))
	go func() { errs <- f.proxied.Decr(t.Context(), f.key).Err() }()
	f.value(t, "-1")
	redistest.Must(t, f.proxy.Close())
	for range 2 {
		if err := <-errs; err == nil {
			t.Error("a lost request received a reply")
		}
	}
	redistest.Must(t, f.proxy.Close())
}

func TestChaosRepeatsWithItsSeedAndCounts(t *testing.T) {
	t.Parallel()
	run := func() (failed int, value string) {
		f := setUp(t)
		stop := f.proxy.Chaos(respproxy.Chaos{
			Seed: 7, DropRequest: 0.1, DropReply: 0.1, Cut: 0.1, Duplicate: 0.1, Delay: 0.1, MaxDelay: time.Millisecond,
		})
		for range 100 {
			if f.proxied.Incr(t.Context(), f.key).Err() != nil {
				failed++
			}
		}
		stop()
		redistest.Must(t, f.proxied.Incr(t.Context(), f.key).Err())
		return failed, f.direct.Get(t.Context(), f.key).Val()
	}
	failed, value := run()
	if failed < 10 || failed > 60 {
		t.Errorf("%d of 100 requests failed", failed)
	}
	if again, sameValue := run(); again != failed || sameValue != value {
		t.Errorf("the same seed had different results: %d failed, then %d; counter %s, then %s", failed, again, value, sameValue)
	}
}
