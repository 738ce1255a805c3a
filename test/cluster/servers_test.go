package cluster_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// deniedCommands are what managed services keep for themselves, between them.
var deniedCommands = []string{"config", "debug", "info", "wait", "memory", "command"}

// restricted makes a user on each server who may do everything else.
func restricted(t testing.TB, addrs ...string) (name string) {
	t.Helper()
	name = redistest.Tag(t)
	args := []any{"ACL", "SETUSER", name, "on", ">secret", "~*", "+@all"}
	for _, command := range deniedCommands {
		args = append(args, "-"+command)
	}
	for _, addr := range addrs {
		if err := redistest.Admin(t, addr).Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		// Before 6.2 users have all channels, and there is no such rule.
		if err := redistest.Admin(t, addr).Do(t.Context(), "ACL", "SETUSER", name, "&*").Err(); err != nil && !strings.Contains(err.Error(), "Syntax error") {
			t.Fatal(err)
		}
	}
	return name
}

// TestDeniedCommands holds that luatx does without what managed services deny: messages are consumed, applied and
// acked, events published, failures undone. It says what it was denied, once, in its log.
func TestDeniedCommands(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		name := restricted(t, server.Addr())
		testDenied(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = name, "secret" }), "INFO")
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.SharedCluster(t)
		name := restricted(t, cluster.Addrs()...)
		testDenied(t, cluster.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = name, "secret" }), "INFO")
	})
	t.Run("renamed", func(t *testing.T) { // to nothing, as older servers are restricted
		t.Parallel()
		var renamed []string
		for _, command := range deniedCommands {
			if command != "info" { // the tests look at it
				renamed = append(renamed, "rename-command "+command+` ""`)
			}
		}
		testDenied(t, redistest.Single(t, redistest.Config(renamed...)).Client(t))
	})
}

func testDenied(t *testing.T, client redis.UniversalClient, said ...string) {
	t.Helper()
	ctx, log := redistest.Soon(t), &rig.Lines{}
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Keyspace = luatx.Partitions(2).WithPrefix(c.Namespace)
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	stop := consumeAndPublish(ctx, t, client, tr)
	const messages = 20
	for range messages {
		rig.Publish(t, client, rig.Key(t, tr, "a", "orders"), message.Attributes{"id": message.NewID(), "source": "/shop", "type": "order", "subject": "a"})
	}
	published := rig.Key(t, tr, "a", "published")
	redistest.Eventually(t, "every event to be published", func() bool { return client.XLen(ctx, published).Val() == messages })
	stop()
	if n := client.Get(ctx, rig.Key(t, tr, "a", "n")).Val(); n != "20" {
		t.Errorf("applied %s times", n)
	}
	if pending := rig.Pending(t, client, rig.Key(t, tr, "a", "orders")); pending != 0 {
		t.Errorf("%d entries pending", pending)
	}

	before := client.XLen(ctx, published).Val() // undone by DUMP and RESTORE
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		tx.Pipeline().XAdd(ctx, &redis.XAddArgs{Stream: published, Values: []any{"f", "v"}})
		tx.Pipeline().LPush(ctx, published, "wrong")
		return tx.Pipeline().Del(ctx, published).Err()
	})
	if err == nil || client.XLen(ctx, published).Val() != before {
		t.Errorf("a transaction that fails: %v; %d entries, %d before", err, client.XLen(ctx, published).Val(), before)
	}

	text := log.String()
	old := strings.Count(text, "a cluster has wake-ups from 7.0 on")
	if got := strings.Count(text, "\n") - old; got != len(said) {
		t.Errorf("%d log lines, want one for each of %v:\n%s", got, said, text)
	}
	for _, command := range said {
		if strings.Count(text, "command="+command+" ") != 1 {
			t.Errorf("the log does not say once that %s was denied:\n%s", command, text)
		}
	}
}

// consumeAndPublish runs a service: subscriber, scripted stack, relay.
func consumeAndPublish(ctx context.Context, t testing.TB, client redis.UniversalClient, tr *luatx.Transactor) (stop func()) {
	t.Helper()
	logger := tr.Config().Logger
	n := rig.Key(t, tr, "a", "n")
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Logger: logger}})
	handler := message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		sold := message.New("sold", message.Attributes{"type": "sold", "source": "/shop"}, nil)
		return []*message.Message{sold}, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, n))
	})
	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{
		Stream: rig.Key(t, tr, "a", "orders"), Group: "g", BlockTimeout: 20 * time.Millisecond, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: rig.Key(t, tr, "a", "published")})
	if err != nil {
		t.Fatal(err)
	}
	events, err := relay.New(tr, relay.Streams(publisher), relay.Config{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ch, err := sub.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		engine.Router().Use(rig.Scripted(t, tr)), engine.AddHandler("orders", nil, handler), engine.AddRawInput("orders", nil, ch),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{engine.Run, events.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		for msg := range ch {
			msg.Release()
		}
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}
