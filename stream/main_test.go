package stream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// envChild makes the test process a consumer that receives messages and never settles one. Its value is address, stream and
// group.
const envChild = "LUATX_STREAM_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		fmt.Fprintln(os.Stderr, childMain())
		os.Exit(1)
	}
	if os.Getenv(envMember) != "" {
		fmt.Fprintln(os.Stderr, memberMain())
		os.Exit(1)
	}
	redistest.Main(m)
}

const patience = time.Minute

// fixture is a stream for one test.
type fixture struct {
	client redis.UniversalClient
	key    string
	logs   *recorder
}

func newFixture(t *testing.T, client redis.UniversalClient) *fixture {
	t.Helper()
	return &fixture{client: client, key: "{" + redistest.Tag(t) + "}:orders", logs: &recorder{}}
}

func shared(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, redistest.Shared(t).Client(t))
}

// config returns a config with short times. Tests lengthen those of operations that must not happen.
func (f *fixture) config() stream.SubscriberConfig {
	return stream.SubscriberConfig{
		Stream: f.key, Group: "shop", BlockTimeout: 20 * time.Millisecond, ClaimInterval: 20 * time.Millisecond,
		MaxIdleTime: time.Hour, NackBackoff: message.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond},
		Logger: f.logs.logger(),
	}
}

type subscription struct {
	*stream.Subscriber
	ch     <-chan *message.RawMessage
	cancel func()
	stop   func() // ends it and waits for the end
}

func (f *fixture) subscribe(t *testing.T, cfg stream.SubscriberConfig) *subscription {
	t.Helper()
	sub, err := stream.NewSubscriber(f.client, cfg)
	redistest.Must(t, err)
	return run(t, sub)
}

func run(t *testing.T, sub *stream.Subscriber) *subscription {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := sub.Subscribe(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	stop := func() {
		cancel()
		for msg := range ch {
			msg.Release()
		}
	}
	t.Cleanup(stop)
	return &subscription{Subscriber: sub, ch: ch, cancel: cancel, stop: stop}
}

func (s *subscription) next(t *testing.T) *message.RawMessage {
	t.Helper()
	select {
	case msg, ok := <-s.ch:
		if !ok {
			t.Fatal("the channel is closed")
		}
		return msg
	case <-time.After(patience):
		t.Fatal("no message")
		return nil
	}
}

// add writes plain entries with data a, b, … and returns their ids.
func (f *fixture) add(t *testing.T, data ...string) []string {
	t.Helper()
	ids := make([]string, len(data))
	for i, d := range data {
		id, err := f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, Values: []any{"type", "order.placed", "data", d}}).Result()
		redistest.Must(t, err)
		ids[i] = id
	}
	return ids
}

// takeAs reads new entries as another consumer, and leaves them pending.
func (f *fixture) takeAs(t *testing.T, consumer string, count int64) {
	t.Helper()
	redistest.Must(t, ignoreBusy(f.client.XGroupCreateMkStream(t.Context(), f.key, "shop", "0").Err()))
	_, err := f.client.XReadGroup(t.Context(), &redis.XReadGroupArgs{
		Group: "shop", Consumer: consumer, Streams: []string{f.key, ">"}, Count: count, Block: -1,
	}).Result()
	redistest.Must(t, err)
}

func ignoreBusy(err error) error {
	if err != nil && redis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil
	}
	return err
}

func (f *fixture) pending(t *testing.T) []redis.XPendingExt {
	t.Helper()
	pending, err := f.client.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: f.key, Group: "shop", Start: "-", End: "+", Count: 1000}).Result()
	redistest.Must(t, err)
	return pending
}

func (f *fixture) wantPending(t *testing.T, want int) {
	t.Helper()
	eventually(t, func() bool { return len(f.pending(t)) == want }, func() string {
		return fmt.Sprintf("%d entries pending, want %d", len(f.pending(t)), want)
	})
}

// proxied returns a fixture of the shared server whose client goes through a proxy.
func proxied(t *testing.T, change ...func(*redis.Options)) (*fixture, *respproxy.Proxy) {
	t.Helper()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	return newFixture(t, redistest.Client(t, proxy.Addr(), change...)), proxy
}

func send(t testing.TB, pub *stream.Publisher, msgs ...*message.RawMessage) {
	t.Helper()
	redistest.Must(t, errors.Join(pub.Send(t.Context(), msgs...)...))
}

func eventually(t *testing.T, cond func() bool, say func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(say())
		}
	}
}

func wantData(t testing.TB, msg *message.RawMessage, want string) {
	t.Helper()
	if string(msg.Data) != want {
		t.Fatalf("data is %q, want %q", msg.Data, want)
	}
}

// recorder counts log records by their text.
type recorder struct{ rig.Lines }

func (r *recorder) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (r *recorder) count(text string) int {
	return strings.Count(r.String(), "msg="+strconv.Quote(text))
}

func (r *recorder) want(t *testing.T, text string, want int) {
	t.Helper()
	eventually(t, func() bool { return r.count(text) >= want }, func() string {
		return fmt.Sprintf("log %q came %d times, want %d", text, r.count(text), want)
	})
	if got := r.count(text); got != want {
		t.Fatalf("log %q came %d times, want %d", text, got, want)
	}
}
