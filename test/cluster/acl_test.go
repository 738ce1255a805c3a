package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/repair"
	"github.com/luatx/luatx/stream"
)

// documented creates a user on the server as in docs/acl.md, for the given keys and with the commands of its handlers, and
// returns its client. It omits the categories of commands that handlers may use, because they would hide a missing right.
func documented(t testing.TB, server *redistest.Server, user string, rules ...string) *redis.Client {
	t.Helper()
	granted, err := server.Binary().Rules(user)
	redistest.Must(t, err)
	granted = slices.DeleteFunc(granted, func(rule string) bool { return strings.HasPrefix(rule, "+@") })
	if server.Binary().AtLeast(6, 2) {
		rules = append(rules, "resetchannels", "&shop:*")
	}
	rules = append(rules, connecting(server.Binary())...)
	args := []any{"ACL", "SETUSER", user, "reset", "on", ">secret"}
	for _, rule := range slices.Concat(rules, granted) {
		args = append(args, rule)
	}
	redistest.Must(t, server.Admin(t).Do(t.Context(), args...).Err())
	return server.Client(t, func(o *redis.Options) { o.Username, o.Password = user, "secret" })
}

// connecting returns the rules for the commands that go-redis sends on each connection, on servers for which docs/acl.md has no
// lines with them.
func connecting(bin redistest.Binary) []string {
	if bin.AtLeast(7, 0) {
		return nil
	}
	return []string{"+client|setinfo", "+client|maint_notifications"}
}

// TestDocumentedRightsAreSufficientForEachUser uses each user on its own keys: an application consumes, commits and undoes, a
// relay publishes, and an operator re-arms.
func TestDocumentedRightsAreSufficientForEachUser(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	handlers := []string{"+incr", "+get", "+lpop", "+lpush", "+rpush"}
	app := documented(t, server, "app", slices.Concat([]string{"~shop:*", "~order:*"}, handlers)...) // and those of its own relay
	shop := func(c *luatx.Config) { c.Namespace, c.Keyspace = "shop", luatx.Partitions(2).WithPrefix("order") }
	tr := rig.NewTransactor(t, app, shop)
	k := rig.Key(t, tr, "a", "k")

	n := rig.Key(t, tr, "a", "n")
	stop := consumeAndPublish(redistest.Soon(t), t, app, tr)
	rig.Publish(t, app, rig.Key(t, tr, "a", "orders"), message.Attributes{"id": "1", "source": "/shop", "type": "order", "subject": "a"})
	redistest.Eventually(t, "the message to be applied, its event to be published", func() bool {
		return app.Get(t.Context(), n).Val() == "1" && app.XLen(t.Context(), rig.Key(t, tr, "a", "published")).Val() == 1
	})
	stop()
	redistest.Must(t, assert.ErrOf(rig.Transact(t, tr, k, "HSET K:h f v;RPUSH K:l a b;SET K 1")))
	before := rig.Dump(t, app, tr)
	if _, err := rig.Transact(t, tr, k, "INCR K;HDEL K:h f;LPOP K:l;RENAME K:l K:m;SADD K:l x;LPUSH K x"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a transaction that fails: %v", err)
	}
	rig.NoTrace(t, app, tr, before)
	if err := app.Set(t.Context(), "another", "v", 0).Err(); err == nil {
		t.Error("the user writes keys that are not its own")
	}

	_, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
		return tx.Emit(luatx.Event{ID: "e", Body: []byte(`{"specversion":"1.0","id":"e","type":"t","source":"/s"}`)})
	})
	redistest.Must(t, err)
	cfg := relay.Config{Attempts: 1, NoInline: true, SweepInterval: 10 * time.Millisecond}
	publisher := documented(t, server, "relay", "~shop:*", "~events:*")
	stop = runRelay(t, rig.NewUnchecked(t, publisher, shop), relay.PublisherFunc(func(context.Context, []*message.RawMessage) []error {
		return []error{errors.New("never")}
	}), cfg)
	operator := outbox.NewStore(rig.NewUnchecked(t, documented(t, server, "operator", "~shop:*"), shop)).As("alice")
	var parked []outbox.Event
	redistest.Eventually(t, "the event to be parked", func() bool {
		for p, err := range operator.Parked(t.Context(), outbox.Filter{}) {
			redistest.Must(t, err)
			parked = append(parked, p)
		}
		return len(parked) > 0
	})
	stop()
	if n, err := operator.Rearm(t.Context(), parked[0].Slot, parked[0].ID); n.Done() != 1 || err != nil {
		t.Errorf("re-armed: %v, %v", n, err)
	}
	operate(t, operator, parked[0])
	if counts, err := operator.Counts(t.Context()); err != nil || counts.Pending != 1 {
		t.Errorf("%+v, %v", counts, err)
	}
	events, err := stream.NewPublisher(publisher, stream.PublisherConfig{Stream: "events:sold"})
	redistest.Must(t, err)
	stop = runRelay(t, rig.NewUnchecked(t, publisher, shop), relay.Streams(events), cfg)
	redistest.Eventually(t, "the event to be published", func() bool {
		return server.Admin(t).XLen(t.Context(), "events:sold").Val() == 1
	})
	stop()
	log, err := server.Admin(t).ACLLog(t.Context(), 100).Result()
	redistest.Must(t, err)
	for _, entry := range log {
		assert.Equal(t, entry.Object, "another", "the object of %+v, which the server has denied", entry)
	}
}

func TestDocumentedRepairUserRemovesTheInboxOfAnIdleShard(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	shop := func(c *luatx.Config) { c.Namespace, c.Keyspace = "shop", luatx.Partitions(1) }
	ctx, admin := redistest.Soon(t), server.Admin(t)
	tr := rig.NewUnchecked(t, admin, shop)
	redistest.Must(t, assert.ErrOf(tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID("x"))))
	inbox := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("inbox:a")
	worker, err := repair.New(rig.NewUnchecked(t, documented(t, server, "repair", "~shop:*"), shop), repair.Config{})
	redistest.Must(t, err)
	for range 3 { // the newer generation, the older one, and the identity
		meta := admin.HGet(ctx, inbox, "id").Val()
		began := time.Now().Add(-3 * tr.Config().Retention).UnixMilli()
		redistest.Must(t, admin.HSet(ctx, inbox, "id", fmt.Sprintf("%s%013d%s", meta[:13], began, meta[26:])).Err())
		for _, err := range worker.Fix(ctx) {
			redistest.Must(t, err)
		}
		if admin.Exists(ctx, inbox).Val() == 0 {
			return
		}
	}
	t.Error("the inbox of an idle shard stays")
}

// TestDocumentedACLLinesWork sends the lines of docs/acl.md unchanged and in order. The users have only the channels that
// the lines grant.
func TestDocumentedACLLinesWork(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	lines, err := server.Binary().ACLLines()
	redistest.Must(t, err)
	for _, words := range lines {
		assert.NoError(t, server.Admin(t).Do(t.Context(), rig.Anys(words)...).Err(), "%s", strings.Join(words, " "))
	}
	if !server.Binary().AtLeast(6, 2) {
		return // users have all channels
	}
	for user, channels := range map[string]string{"app": "&shop:*", "relay": "&shop:*", "operator": "&shop:*", "trigger": "&news", "service": "&orders:*"} {
		granted, err := server.Admin(t).ACLList(t.Context()).Result()
		redistest.Must(t, err)
		at := slices.IndexFunc(granted, func(line string) bool { return strings.HasPrefix(line, "user "+user+" ") })
		if at < 0 || !strings.Contains(granted[at], " "+channels+" ") || strings.Contains(granted[at], "&* ") {
			t.Errorf("%s: %q, want the channels %s", user, granted, channels)
		}
	}
}

func TestUsersOfACLPageRegisterThemselvesAndTheOperatorListsThem(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	lines, err := server.Binary().ACLLines()
	redistest.Must(t, err)
	for _, words := range lines {
		redistest.Must(t, server.Admin(t).Do(t.Context(), rig.Anys(words)...).Err())
	}
	list := func(user string) *process.List {
		client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = user, "secret" })
		return process.New(client, "shop", slog.New(slog.DiscardHandler))
	}
	seen := func() (kinds []string) {
		for e, err := range list("operator").All(redistest.Soon(t)) {
			redistest.Must(t, err)
			kinds = append(kinds, e.Kind)
		}
		return kinds
	}
	ctx, stop := context.WithCancel(t.Context())
	var keeping sync.WaitGroup
	for user, kind := range map[string]string{"app": process.Consumer, "relay": process.Relay, "repair": process.Repair, "trigger": process.Trigger} {
		own := list(user)
		keeping.Go(func() { own.Keep(ctx, kind, func() process.Report { return process.Report{} }) })
	}
	redistest.Eventually(t, "all of them to register", func() bool {
		return slices.Equal(seen(), []string{"consumer", "relay", "repair", "trigger"})
	})
	stop()
	keeping.Wait()
	assert.Equal(t, len(seen()), 0, "processes that are left")
}

func TestUsersOfACLPageWriteTheHistoryAndMeasureTheOutbox(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	lines, err := server.Binary().ACLLines()
	redistest.Must(t, err)
	for _, words := range lines {
		redistest.Must(t, server.Admin(t).Do(t.Context(), rig.Anys(words)...).Err())
	}
	for _, user := range []string{"app", "relay", "operator", "repair"} {
		for _, rule := range connecting(server.Binary()) {
			redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", user, rule).Err())
		}
		client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = user, "secret" })
		tr := rig.NewUnchecked(t, client, func(c *luatx.Config) { c.Namespace, c.Keyspace = "shop", luatx.Partitions(2).WithPrefix("order") })
		blockedAndFailing(t, server.Admin(t), tr)
		h := link.Of(tr).History
		h.Interval = 10 * time.Millisecond
		ctx, stop := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		var counter history.Counter
		counter.Add(user, settle.Sent, "")
		keeping.Go(func() { h.Keep(ctx, &counter) })
		redistest.Eventually(t, user+" to count and to measure", func() bool {
			now, err := h.Now(ctx)
			redistest.Must(t, err)
			all, err := h.Read(ctx, history.Coarse(), now.Add(-history.Coarse().Step), now)
			redistest.Must(t, err)
			return len(all) > 0 && all[len(all)-1].Destinations[user].Sent == 1 && all[len(all)-1].Gauges != nil && all[len(all)-1].Gauges.Blocked == 1
		})
		stop()
		keeping.Wait()
		redistest.Must(t, server.Admin(t).FlushAll(t.Context()).Err())
	}
	log, err := server.Admin(t).ACLLog(t.Context(), 100).Result()
	redistest.Must(t, err)
	assert.Equal(t, len(log), 0, "denials")
}

// blockedAndFailing fills a shard with an event that failed and one that waits behind a parked one, so that a measurement reads all
// that it ever reads.
func blockedAndFailing(t testing.TB, admin *redis.Client, tr *luatx.Transactor) {
	t.Helper()
	shard, now := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]), float64(time.Now().UnixMilli())
	ctx := t.Context()
	redistest.Must(t,
		admin.HSet(ctx, shard.Key("entries"), "failed", "{}", "parked", "{}", "behind", "{}").Err(),
		admin.ZAdd(ctx, shard.Key("pending"), redis.Z{Member: "failed", Score: now}).Err(),
		admin.HSet(ctx, shard.Key("attempts"), "failed", 1).Err(),
		admin.HSet(ctx, shard.Key("errors"), "failed", "[]").Err(),
		admin.ZAdd(ctx, shard.Key("parked"), redis.Z{Member: "parked", Score: now}).Err(),
		admin.HSet(ctx, shard.Key("headers"), "parked", "0000000000000001k", "behind", "0000000000000002k").Err(),
		admin.ZAdd(ctx, shard.Key("lanes"), redis.Z{Member: "k\x000000000000000001\x00parked"}, redis.Z{Member: "k\x000000000000000002\x00behind"}).Err(),
	)
}

// operate runs the other operations of an operator, and leaves an event unchanged.
func operate(t testing.TB, store *outbox.Store, e outbox.Event) {
	t.Helper()
	ctx, line := t.Context(), `{"aggregate":"a","id":"x","key":"k","attempts":1,"destination":"d","history":[{"attempt":1,"class":"c"}],"body":{"id":"x"}}`
	do := func(what string, err error) {
		t.Helper()
		assert.NoError(t, err, "%s", what)
	}
	_, err := store.Show(ctx, e.Slot, e.ID)
	do("show", err)
	_, err = store.Overview(ctx)
	do("overview", err)
	_, err = store.FindPending(ctx, 10)
	do("find", err)
	_, err = store.Oldest(ctx)
	do("oldest", err)
	for _, state := range []outbox.State{outbox.Pending, outbox.Leased, outbox.Waiting, outbox.Sent, outbox.Parked} {
		for _, err := range store.List(ctx, state, outbox.ListOptions{}) {
			do("list", err)
		}
	}
	_, err = store.Import(ctx, strings.NewReader(line))
	do("import", err)
	n, err := store.Slot("a")
	do("slot", err)
	_, err = store.RearmAll(ctx, outbox.Filter{IDs: []string{"x"}}, outbox.RearmOptions{Destination: "e"})
	do("re-arm", err)
	_, err = store.Export(ctx, io.Discard, outbox.Filter{})
	do("export", err)
	_, err = store.Erase(ctx, n, "asked to", "x")
	do("erase", err)
	_, err = store.Replay(ctx, time.Time{}, outbox.Filter{}, outbox.ReplayOptions{})
	do("replay", err)
	answers, err := store.Discard(ctx, n, "done with it", "x")
	if do("discard", err); answers.Done() != 1 {
		t.Errorf("discard: %v", answers)
	}
	for _, err := range store.Audit(ctx, time.Time{}) {
		do("audit", err)
	}
}

func runRelay(t testing.TB, tr *luatx.Transactor, publisher relay.Publisher, cfg relay.Config) (stop func()) {
	t.Helper()
	r, err := relay.New(tr, publisher, cfg)
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// deniedCommands lists the commands that one or another managed service denies.
var deniedCommands = []string{"config", "debug", "info", "wait", "memory", "command"}

// restricted creates a user on each server who may run all other commands.
func restricted(t testing.TB, addrs ...string) (name string) {
	t.Helper()
	name = redistest.Tag(t)
	args := []any{"ACL", "SETUSER", name, "on", ">secret", "~*", "+@all"}
	for _, command := range deniedCommands {
		args = append(args, "-"+command)
	}
	for _, addr := range addrs {
		redistest.Must(t, redistest.Admin(t, addr).Do(t.Context(), args...).Err())
		// Before Redis 6.2 users have all channels, and there is no such rule.
		if err := redistest.Admin(t, addr).Do(t.Context(), "ACL", "SETUSER", name, "&*").Err(); err != nil && !strings.Contains(err.Error(), "Syntax error") {
			t.Fatal(err)
		}
	}
	return name
}

// TestLuatxWorksWithoutCommandsThatManagedServicesDeny checks that messages are consumed, applied and acked, events published,
// and failures undone. Each denial is logged once.
func TestLuatxWorksWithoutCommandsThatManagedServicesDeny(t *testing.T) {
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
	t.Run("renamed", func(t *testing.T) { // renamed to nothing, as older servers are restricted
		t.Parallel()
		var renamed []string
		for _, command := range deniedCommands {
			if command != "info" { // the tests use it
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
	assert.Equal(t, client.Get(ctx, rig.Key(t, tr, "a", "n")).Val(), "20", "the number of applied messages")
	assert.Equal(t, rig.Pending(t, client, rig.Key(t, tr, "a", "orders")), 0, "pending entries")

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
		assert.Equal(t, strings.Count(text, "command="+command+" "), 1, "log lines of %s in\n%s", command, text)
	}
}

// consumeAndPublish runs a service: subscriber, scripted stack and relay.
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
	redistest.Must(t, err)
	publisher, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: rig.Key(t, tr, "a", "published")})
	redistest.Must(t, err)
	events, err := relay.New(tr, relay.Streams(publisher), relay.Config{Logger: logger})
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(ctx)
	ch, err := sub.Subscribe(ctx)
	redistest.Must(t, err)
	redistest.Must(t,
		engine.Router().Use(rig.Scripted(t, tr)), engine.AddHandler("orders", nil, handler), engine.AddRawInput("orders", nil, ch),
	)
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{engine.Run, events.Run} {
		running.Go(func() {
			rig.NoError(t, run(ctx))
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
