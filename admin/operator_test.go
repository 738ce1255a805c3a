package admin_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// park parks the events that are due.
func park(t testing.TB, tr *luatx.Transactor, n int64) {
	t.Helper()
	admintest.ParkDue(t, tr, n, func(*message.RawMessage) string { return "http_422" })
}

func TestStatsCountEventsAndRatesAreTheChangesBetweenThem(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 4)
		before, err := op.Stats(ctx)
		redistest.Must(t, err)
		if before.Counts != (outbox.Counts{}) || len(before.Top(5)) != 0 || before.At.IsZero() {
			t.Errorf("stats of an unused service: %+v", before)
		}
		admintest.Emit(t, tr, "a", "1", "2")
		admintest.Emit(t, tr, "b", "3")
		park(t, tr, 3)
		admintest.Emit(t, tr, "c", "4")
		after, err := op.Stats(ctx)
		redistest.Must(t, err)
		if after.Counts.Parked != 3 || after.Counts.Pending != 1 || after.Parked.ByDestination["bank"] != 3 {
			t.Errorf("after = %+v", after)
		}
		if top := after.Top(5); len(top) != 1 || top[0] != (admin.Reason{Class: "http_422", Events: 3}) {
			t.Errorf("top %v", top)
		}
		after.At = before.At.Add(2 * time.Second)
		if got := after.Rates(before); got != (admin.Rates{Enqueued: 2, Failed: 1.5, Parked: 1.5}) {
			t.Errorf("rates %+v of %+v", got, after.Counts.Totals)
		}
		if got := before.Rates(after); got != (admin.Rates{}) {
			t.Errorf("rates from later to earlier stats: %+v", got)
		}
	})
}

func TestFindReturnsAnIDFromEachShardInItsState(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 64)
		admintest.Emit(t, tr, "a", "1", "2")
		park(t, tr, 2)
		admintest.Emit(t, tr, "another", "1")
		states := map[outbox.State]int{}
		for e, err := range op.Find(redistest.Soon(t), "1") {
			redistest.Must(t, err)
			if e.ID != "1" {
				t.Errorf("found %q", e.ID)
			}
			states[e.State]++
		}
		if len(states) != 2 || states[outbox.Parked] != 1 || states[outbox.Pending] != 1 {
			t.Errorf("found %v", states)
		}
		for e, err := range op.Find(redistest.Soon(t), "nobody") {
			t.Errorf("found %+v, %v", e, err)
		}
	})
}

func TestForgottenMessageCountsAgainAndIsRecorded(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 4)
		key, err := tr.Keyspace().Key("a", "n")
		redistest.Must(t, err)
		deliver := func(id string) {
			t.Helper()
			r := message.NewRouter(message.PipeConfig{})
			redistest.Must(t, r.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})))
			redistest.Must(t, r.AddHandler("count", nil, message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
				return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, key))
			})))
			_, err := r.Process(ctx, message.New(nil, message.Attributes{"id": id, "source": "/shop", "type": "order", "subject": "a"}, message.NewAcking(nil, nil)))
			redistest.Must(t, err)
		}
		count := func(want string) {
			t.Helper()
			if got := client.Get(ctx, key).Val(); got != want {
				t.Errorf("counted %s, want %s", got, want)
			}
		}
		name := func(id string) luatx.MessageID {
			return luatx.MessageID{Scope: tr.Config().Namespace + "/count", Source: "/shop", ID: id}
		}
		deliver("1")
		deliver("2")
		deliver("1")
		count("2")
		m, err := op.Known(ctx, "a", name("1"))
		if err != nil || !m.Known || m.Older || m.Broken != "" || m.Begun.IsZero() {
			t.Errorf("known: %+v, %v", m, err)
		}
		known, err := op.Forget(ctx, "a", name("1"), "the bank lost it")
		if !known || err != nil {
			t.Errorf("forget: %v, %v", known, err)
		}
		if m, err = op.Known(ctx, "a", name("1")); err != nil || m.Known {
			t.Errorf("known after forget: %+v, %v", m, err)
		}
		deliver("2")
		deliver("1")
		count("3")
		if known, err = op.Forget(ctx, "a", name("nobody"), "why not"); known || err != nil {
			t.Errorf("forget of an unknown message: %v, %v", known, err)
		}
		if _, err = op.Forget(ctx, "a", name("1"), ""); err == nil {
			t.Error("Forget accepts an empty reason")
		}
		if m, _ = op.Known(ctx, "a", name("1")); !m.Known {
			t.Error("Forget accepts an empty reason")
		}
		var acts []string
		for r, err := range op.Audit(ctx, time.Time{}) {
			redistest.Must(t, err)
			acts = append(acts, r.Who+" "+r.Act+" "+r.Why+" "+strings.Join(r.IDs, ","))
		}
		if want := "alice forget the bank lost it a " + tr.Config().Namespace + "/count /shop 1"; len(acts) != 1 || acts[0] != want {
			t.Errorf("the audit has %q, want %q", acts, want)
		}
	})
}

func TestKnownAndForgetSelectAnAggregateOrTheTagOfAStream(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 1)
		tag := tr.Keyspace().Tags()[0]
		stream := tr.Keyspace().TagKey(tag, "in")
		r := message.NewRouter(message.PipeConfig{})
		redistest.Must(t, r.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{Scope: "count"})))
		redistest.Must(t, r.AddHandler("count", nil, message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
			return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, tr.Keyspace().TagKey(tag, "n")))
		})))
		redistest.Must(t, client.XGroupCreateMkStream(ctx, stream, "g", "0").Err())
		deliver := func(subject string) {
			t.Helper()
			entry, err := client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"f", "v"}}).Result()
			redistest.Must(t, err)
			redistest.Must(t, client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{stream, ">"}}).Err())
			attrs := message.Attributes{"id": "1", "source": "/shop", "type": "order"}
			if subject != "" {
				attrs["subject"] = subject
			}
			acking := message.NewAckingFrom(message.AckingConfig{Source: message.Source{Stream: stream, Group: "g", Consumer: "c", Entry: entry}})
			_, err = r.Process(ctx, message.New(nil, attrs, acking))
			redistest.Must(t, err)
		}
		id := luatx.MessageID{Scope: "count", Source: "/shop", ID: "1"}
		want := func(aggregate string, known bool) {
			t.Helper()
			if m, err := op.Known(ctx, aggregate, id); err != nil || m.Known != known {
				t.Errorf("%s: known %t, %v; want %t", aggregate, m.Known, err, known)
			}
		}
		deliver("a")
		want("a", true)
		want("b", false)
		want("{"+tag+"}", false)
		deliver("b")
		deliver("")
		deliver("")
		want("b", true)
		want("{"+tag+"}", true)
		if forgot, err := op.Forget(ctx, "{"+tag+"}", id, "why"); !forgot || err != nil {
			t.Errorf("forgot %t, %v", forgot, err)
		}
		want("{"+tag+"}", false)
		want("a", true)
		want("b", true)
		deliver("a")
		deliver("")
		if n := client.Get(ctx, tr.Keyspace().TagKey(tag, "n")).Val(); n != "4" {
			t.Errorf("applied %s times, want 4", n)
		}
	})
}

func TestForgetRemovesBothGenerationsRepliesAndRollbackFailure(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 1)
		shard := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0])
		id := luatx.MessageID{Scope: "s", ID: "1"}
		digest := identity.ID{Aggregate: "a", Scope: "s", ID: "1"}.Sum().Digest()
		admintest.Emit(t, tr, "a", "e")
		for _, name := range []string{"inbox:b", "results", "results:b", "broken"} {
			redistest.Must(t, client.HSet(ctx, shard.Key(name), digest, "left").Err())
			redistest.Must(t, client.HSet(ctx, shard.Key(name), "another", "v").Err())
		}
		m, err := op.Known(ctx, "a", id)
		if err != nil || !m.Known || !m.Older || m.Broken != "left" || !m.Replies {
			t.Errorf("known: %+v, %v", m, err)
		}
		if known, err := op.Forget(ctx, "a", id, "why"); !known || err != nil {
			t.Errorf("forget: %v, %v", known, err)
		}
		for _, name := range []string{"inbox:b", "results", "results:b", "broken"} {
			if got := client.HKeys(ctx, shard.Key(name)).Val(); len(got) != 1 || got[0] != "another" {
				t.Errorf("%s holds %q", name, got)
			}
		}
		redistest.Must(t, client.HSet(ctx, shard.Key("inbox:a"), "id", "another's", digest, "t").Err())
		if known, err := op.Forget(ctx, "a", id, "why"); known || err == nil || !strings.Contains(err.Error(), "another's") {
			t.Errorf("forget in a foreign shard: %v, %v", known, err)
		}
		if _, err := op.Known(ctx, "a", id); err == nil {
			t.Error("Known reads a foreign shard")
		}
	})
}

func TestStreamsReturnGroupsLagAndPendingByConsumer(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		_, op := admintest.Service(t, client, 1)
		key, never := "{"+redistest.Tag(t)+"}:orders", redistest.Tag(t)
		for range 5 {
			redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"f", "v"}}).Err())
		}
		redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: stream.DeadLetterKey(key), Values: []string{"f", "v"}}).Err())
		redistest.Must(t, client.XGroupCreate(ctx, key, "g", "0").Err())
		redistest.Must(t, client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{key, ">"}, Count: 2}).Err())
		var all []admin.StreamState
		for s, err := range op.Streams(ctx, key, never) {
			redistest.Must(t, err)
			all = append(all, s)
		}
		if len(all) != 2 || all[0].Length != 5 || all[0].DeadLetters != 1 || len(all[0].Groups) != 1 {
			t.Fatalf("streams = %+v", all)
		}
		g := all[0].Groups[0]
		if g.Name != "g" || g.Pending != 2 || g.Lag == 0 || g.Oldest == "" || len(g.Consumers) != 1 || g.Consumers[0].Name != "c" || g.Consumers[0].Pending != 2 {
			t.Errorf("group = %+v", g)
		}
		if all[0].Missing || !all[1].Missing || all[1].Length != 0 {
			t.Errorf("missing stream: %+v", all[1])
		}
	})
}

func TestStreamsOfAPartitionedNameAreThoseOfAllPartitions(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 3)
		keys := stream.PartitionKeys(tr.Keyspace(), "orders")
		redistest.Must(t, client.XAdd(redistest.Soon(t), &redis.XAddArgs{Stream: keys[1], Values: []string{"f", "v"}}).Err())
		var found []string
		for s, err := range op.Streams(redistest.Soon(t), "orders") {
			redistest.Must(t, err)
			if found = append(found, s.Key); s.Missing || (s.Length == 1) != (s.Key == keys[1]) {
				t.Errorf("stream = %+v", s)
			}
		}
		if !slices.Equal(found, keys) {
			t.Errorf("found %q, want %q", found, keys)
		}
	})
}

func TestDrainReturnsUnfinishedShardsAndStreams(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 8)
		key := "{" + redistest.Tag(t) + "}:orders"
		check := func(wantShards, wantStreams int) []admin.Left {
			t.Helper()
			shards, streams, err := op.Drain(ctx, key)
			redistest.Must(t, err)
			if len(shards) != wantShards || len(streams) != wantStreams {
				t.Fatalf("Drain returns %+v and %+v", shards, streams)
			}
			return shards
		}
		check(0, 1) // it does not exist, and may be misspelled
		redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"f", "v"}}).Err())
		check(0, 1)
		redistest.Must(t, client.XTrimMaxLen(ctx, key, 0).Err())
		admintest.Emit(t, tr, "a", "1", "2")
		if left := check(1, 0); left[0].Pending != 2 {
			t.Errorf("left = %+v", left)
		}
		park(t, tr, 2)
		left := check(1, 0)
		if left[0].Pending != 0 || left[0].Parked != 2 {
			t.Errorf("left = %+v", left)
		}
		answers, err := op.Outbox().Discard(ctx, left[0].Slot, "given up", "1", "2")
		if err != nil || answers.Done() != 2 {
			t.Errorf("answers = %v, err = %v", answers, err)
		}
		check(0, 0)
	})
}

func TestDrainReturnsStreamsWhichAGroupHasNotReadToTheEnd(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t) // miniredis does not count the lag as a server does
	ctx := redistest.Soon(t)
	_, op := admintest.Service(t, client, 1)
	key := "{" + redistest.Tag(t) + "}:orders"
	redistest.Must(t, client.XGroupCreateMkStream(ctx, key, "g", "0").Err())
	add := func(n int) (ids []string) {
		for range n {
			id, err := client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"f", "v"}}).Result()
			redistest.Must(t, err)
			ids = append(ids, id)
		}
		return ids
	}
	read := func(acknowledged bool) func() error {
		return func() error {
			return client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{key, ">"}, Block: -1, NoAck: acknowledged}).Err()
		}
	}
	ids := add(2)
	for _, step := range []struct {
		name string
		do   func() error
		want int
	}{
		{"nothing is read", func() error { return nil }, 1},
		{"both are pending", read(false), 1},
		{"one is pending", func() error { return client.XAck(ctx, key, "g", ids[0]).Err() }, 1},
		{"both are acknowledged", func() error { return client.XAck(ctx, key, "g", ids[1]).Err() }, 0},
		{"one is left and the lag is unknown", func() error { return client.XDel(ctx, key, add(2)[0]).Err() }, 1},
		{"it is read, too", read(true), 0}, // Redis 7.0 counts the deleted entry as unread
	} {
		redistest.Must(t, step.do())
		_, unread, err := op.Drain(ctx, key)
		redistest.Must(t, err)
		if len(unread) != step.want {
			t.Errorf("%s: Drain returns %+v", step.name, unread)
		}
	}
}

func TestNewOperatorRejectsIncompleteConfig(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: "n"})
	redistest.Must(t, err)
	for _, c := range []struct {
		tr   *luatx.Transactor
		cfg  admin.OperatorConfig
		want string
	}{
		{nil, admin.OperatorConfig{Client: client, Name: "a"}, "Transactor"},
		{tr, admin.OperatorConfig{Name: "a"}, "Client"},
		{tr, admin.OperatorConfig{Client: client}, "Name"},
		{tr, admin.OperatorConfig{Client: client, Name: "a"}, ""},
	} {
		_, err := admin.NewOperator(c.tr, c.cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}

func TestDocumentedUserCanDoAnOperatorsWork(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	tr, _ := admintest.Service(t, server.Admin(t), 4)
	admintest.Emit(t, tr, "a", "1")
	park(t, tr, 1)
	rules, err := server.Binary().Rules("operator")
	redistest.Must(t, err)
	args := []any{"ACL", "SETUSER", "operator", "reset", "on", ">secret", "~" + tr.Config().Namespace + ":*", "~*orders*"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	redistest.Must(t, server.Admin(t).Do(t.Context(), args...).Err())
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "operator", "secret" })
	cfg := tr.Config()
	own, err := luatx.New(client, luatx.Config{Namespace: cfg.Namespace, Keyspace: cfg.Keyspace, NoWakeUps: true})
	redistest.Must(t, err)
	op, err := admin.NewOperator(own, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	ctx := redistest.Soon(t)
	_, err = op.Stats(ctx)
	redistest.Must(t, err)
	for _, err := range op.Find(ctx, "1") {
		redistest.Must(t, err)
	}
	id := luatx.MessageID{Scope: "s", ID: "1"}
	_, err = op.Known(ctx, "a", id)
	redistest.Must(t, err)
	_, err = op.Forget(ctx, "a", id, "why")
	redistest.Must(t, err)
	redistest.Must(t, server.Admin(t).XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: []string{"f", "v"}}).Err())
	redistest.Must(t, server.Admin(t).XGroupCreate(ctx, "orders", "g", "0").Err())
	redistest.Must(t, server.Admin(t).XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"orders", ">"}}).Err())
	for _, err := range op.Streams(ctx, "orders") {
		redistest.Must(t, err)
	}
	_, _, err = op.Drain(ctx)
	redistest.Must(t, err)
	slot, err := op.Outbox().Slot("a")
	redistest.Must(t, err)
	if answers, err := op.Outbox().Rearm(ctx, slot, "1"); answers.Done() != 1 || err != nil {
		t.Errorf("re-arm: %v, %v", answers, err)
	}
}
