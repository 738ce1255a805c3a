package commit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

func TestTransactCommitsAndFillsReplies(t *testing.T) {
	t.Parallel()
	redistest.Every(t, testCommit)
	t.Run("RESP2", func(t *testing.T) {
		t.Parallel()
		testCommit(t, redistest.Shared(t).Client(t, func(o *redis.Options) { o.Protocol = 2 }))
	})
}

func testCommit(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	counter, hash := rig.Key(t, tr, "a", "counter"), rig.Key(t, tr, "a", "hash")
	client.Set(ctx, counter, "9007199254740992", 0)

	var fields, count *redis.IntCmd
	var all *redis.MapStringStringCmd
	result, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		p := tx.Pipeline()
		fields = p.HSet(ctx, hash, "name", "ann", "n", 7)
		count = p.Incr(ctx, counter)
		all = p.HGetAll(ctx, hash)
		if fields.Err() != nil {
			t.Errorf("a recorded HSET answers %v", fields.Err())
		}
		for _, cmd := range []redis.Cmder{count, all} {
			if !errors.Is(cmd.Err(), luatx.ErrNotCommitted) || luatx.Queued(cmd) != nil {
				t.Errorf("a recorded %s answers %v", cmd.Name(), cmd.Err())
			}
		}
		return tx.Emit(luatx.Event{Body: []byte(`{"id":"e"}`)})
	})
	if err != nil || result.Outcome != luatx.Committed {
		t.Fatal(result, err)
	}
	if fields.Val() != 2 || count.Val() != 9007199254740993 || all.Val()["name"] != "ann" {
		t.Errorf("replies: %v, %v, %v", fields, count, all)
	}
	assert.Equal(t, client.HGet(ctx, hash, "n").Val(), "7", "the hash")
}

func TestTransactIsIdempotentByID(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		var committed atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				result, err := tr.Transact(ctx, "a", rig.Incr, luatx.WithID("once"))
				rig.NoError(t, err)
				if result.Outcome == luatx.Committed {
					committed.Add(1)
				}
			})
		}
		wg.Wait()
		if n := client.Get(ctx, rig.Key(t, tr, "a", "n")).Val(); n != "1" || committed.Load() != 1 {
			t.Errorf("applied %s times, %d calls committed", n, committed.Load())
		}
		if result, err := tr.Transact(ctx, "a", func(*luatx.Tx) error { return errors.New("exists already") }, luatx.WithID("once")); err != nil || result.Outcome != luatx.Duplicate {
			t.Errorf("a failing duplicate: %v, %v", result, err)
		}
	})
}

func TestFailedCommandOrFunctionLeavesNoTrace(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		text, hash := rig.Key(t, tr, "a", "text"), rig.Key(t, tr, "a", "hash")
		client.Set(ctx, text, "x", 0)
		before := rig.Dump(t, client, tr)
		var last *redis.IntCmd
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			p := tx.Pipeline()
			p.HSet(ctx, hash, "f", "v")
			p.Set(ctx, text, "y", 0)
			p.LPush(ctx, hash, "wrong")
			last = p.Incr(ctx, text)
			return tx.Emit(luatx.Event{Body: []byte("{}")})
		}, luatx.WithID("fails"))
		var failed *luatx.CommandError
		if !errors.As(err, &failed) || failed.Index != 2 || failed.Command != "lpush" || !strings.HasPrefix(failed.Text, "WRONGTYPE") {
			t.Errorf("error %v", err)
		}
		if !errors.As(last.Err(), &failed) {
			t.Errorf("a command of the failed transaction answers %v", last.Err())
		}
		rig.NoTrace(t, client, tr, before)

		if _, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Pipeline().Set(ctx, text, "z", 0)
			return context.Canceled
		}, luatx.WithID("fails")); !errors.Is(err, context.Canceled) {
			t.Errorf("the function's error became %v", err)
		}
		rig.NoTrace(t, client, tr, before)
	})
}

// TestTransactRejectsInvalidInputAndChangesNothing checks both at the call and at the commit.
func TestTransactRejectsInvalidInputAndChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.MaxCommands, c.MaxBytes = 20, 10_000 })
		own := rig.Key(t, tr, "a", "k")
		other := rig.Key(t, tr, "another", "k")
		pending := tr.Config().Namespace + ":{" + slot.Text(slot.OfTag("a")) + "}:pending"
		for name, c := range map[string]struct {
			record func(p redis.Pipeliner) redis.Cmder
			want   error
			says   []string
		}{
			"another slot":   {func(p redis.Pipeliner) redis.Cmder { return p.Set(ctx, other, 1, 0) }, luatx.ErrCrossSlot, []string{other, "{a}"}},
			"two keys":       {func(p redis.Pipeliner) redis.Cmder { return p.Rename(ctx, own, other) }, luatx.ErrCrossSlot, []string{other}},
			"blocks":         {func(p redis.Pipeliner) redis.Cmder { return p.BLPop(ctx, 0, own) }, luatx.ErrCommandRefused, []string{"BLPOP"}},
			"whole keyspace": {func(p redis.Pipeliner) redis.Cmder { return p.FlushAll(ctx) }, luatx.ErrCommandRefused, []string{"FLUSHALL"}},
			"unknown":        {func(p redis.Pipeliner) redis.Cmder { return p.Do(ctx, "NOSUCH", own) }, luatx.ErrCommandRefused, []string{"NOSUCH"}},
			"arity":          {func(p redis.Pipeliner) redis.Cmder { return p.Do(ctx, "GET") }, luatx.ErrCommandRefused, []string{"GET"}},
			"empty key":      {func(p redis.Pipeliner) redis.Cmder { return p.Set(ctx, "", 1, 0) }, luatx.ErrCommandRefused, []string{"empty"}},
			"the shard's own": {func(p redis.Pipeliner) redis.Cmder {
				return p.Del(ctx, pending)
			}, luatx.ErrCommandRefused, []string{"own"}},
			"too many bytes": {func(p redis.Pipeliner) redis.Cmder { return p.Set(ctx, own, strings.Repeat("x", 10_001), 0) }, luatx.ErrTooLarge, []string{"MaxBytes"}},
			"too many args":  {func(p redis.Pipeliner) redis.Cmder { return p.SAdd(ctx, own, make([]any, 5000)...) }, luatx.ErrTooLarge, []string{"split"}},
			"no command":     {func(p redis.Pipeliner) redis.Cmder { return p.Do(ctx) }, luatx.ErrCommandRefused, []string{"empty"}},
			"uncounted keys": {func(p redis.Pipeliner) redis.Cmder { return p.Do(ctx, "ZUNION", "x", own) }, luatx.ErrCommandRefused, []string{"ZUNION"}},
			"not sendable":   {func(p redis.Pipeliner) redis.Cmder { return p.Set(ctx, own, struct{}{}, 0) }, luatx.ErrCommandRefused, []string{"struct {}"}},
			"too many commands": {func(p redis.Pipeliner) redis.Cmder {
				var last redis.Cmder
				for range 21 {
					last = p.Set(ctx, own, 1, 0)
				}
				return last
			}, luatx.ErrTooLarge, []string{"MaxCommands"}},
		} {
			before := rig.Dump(t, client, tr)
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				tx.Pipeline().Set(ctx, own, "written", 0)
				recorded := c.record(tx.Pipeline()).Err() // an adapter that ignores the error
				if !slices.Contains([]string{"too many bytes", "not sendable", "too many commands"}, name) {
					assert.Is(t, recorded, c.want, "%s, at the call", name)
				}
				return nil
			})
			assert.Is(t, err, c.want, "%s", name)
			for _, text := range c.says {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v does not say %q", name, err, text)
				}
			}
			rig.NoTrace(t, client, tr, before)
		}
	})
}

func TestTransactAcceptsValuesAtTheirLimit(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx := redistest.Soon(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.MaxCommands = 20 })
	key := rig.Key(t, tr, "a", "k")
	for n, want := range map[int]error{4998: nil, 4999: luatx.ErrTooLarge} { // plus the command's name and key
		members := make([]any, n)
		for i := range members {
			members[i] = i
		}
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			for range 19 {
				tx.Pipeline().Set(ctx, key+"2", 1, 0)
			}
			return tx.Pipeline().SAdd(ctx, key, members...).Err()
		})
		if !errors.Is(err, want) {
			t.Errorf("%d members: %v, want %v", n, err, want)
		}
	}
	assert.Equal(t, client.SCard(ctx, key).Val(), 4998, "members of the set")
}

func TestCallTakesAsManyArgumentsAsACommandAndNoOtherForm(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, withProcedures(luatx.Procedure{Name: "count", Source: "return #ARGV"}))
	for n, want := range map[int]error{4997: nil, 4998: luatx.ErrCommandRefused} { // plus the call, its procedure and the number of keys
		var count *redis.Cmd
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			count = tx.Call("count", nil, make([]any, n)...)
			return luatx.Queued(count)
		})
		if !errors.Is(err, want) || err == nil && count.Val() != int64(n) {
			t.Errorf("%d arguments: %v, %v; want %v", n, count, err, want)
		}
	}
	for _, args := range [][]any{{}, {"count"}, {5, 0}, {"count", "0"}, {"count", -1}, {"count", 1}} {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return luatx.Queued(tx.Pipeline().Do(ctx, append([]any{"luatx.call"}, args...)...))
		})
		if !errors.Is(err, luatx.ErrCommandRefused) || !strings.Contains(err.Error(), "use Tx.Call") {
			t.Errorf("a call with %v: %v", args, err)
		}
	}
}

func TestTxIsClosedAfterItsFunction(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	var kept *luatx.Tx
	var eventID string
	var cmdable redis.Cmdable
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		kept, cmdable = tx, luatx.CmdableFromContext(tx.Context(ctx), client)
		redistest.Must(t, rig.Emit(tx))
		eventID = tx.EventID()
		if _, err := tr.Transact(tx.Context(ctx), "a", func(*luatx.Tx) error { return nil }); !errors.Is(err, luatx.ErrNested) {
			t.Errorf("Transact inside a transaction: %v", err)
		}
		assert.Is(t, assert.ErrOf(tx.Pipeline().Exec(ctx)), luatx.ErrNested, "Exec inside a transaction")
		return tx.Pipeline().Set(ctx, rig.Key(t, tr, "a"), 1, 0).Err()
	})
	redistest.Must(t, err)
	if err := cmdable.Set(ctx, rig.Key(t, tr, "a"), 2, 0).Err(); !errors.Is(err, luatx.ErrTxClosed) {
		t.Errorf("a command after the commit: %v", err)
	}
	if err := luatx.CmdableFromContext(kept.Context(ctx), client).Set(ctx, rig.Key(t, tr, "a"), 2, 0).Err(); !errors.Is(err, luatx.ErrTxClosed) {
		t.Errorf("a command on a kept context: %v", err)
	}
	if err := kept.Emit(luatx.Event{Body: []byte("{}")}); !errors.Is(err, luatx.ErrTxClosed) {
		t.Errorf("Emit after the commit: %v", err)
	}
	assert.Equal(t, kept.EventID(), eventID, "the id of the next event")
	if seen, err := kept.Seen(ctx); err != nil || seen {
		t.Errorf("Seen after the commit: %t, %v", seen, err)
	}
	assert.Equal(t, client.Get(ctx, rig.Key(t, tr, "a")).Val(), "1", "the key")
}

func TestTxIsClosedAfterItsFunctionFailed(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	var kept *luatx.Tx
	assert.Is(t, assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		kept = tx
		return context.Canceled
	})), context.Canceled, "the function's error")
	assert.Is(t, kept.Emit(luatx.Event{Body: []byte("{}")}), luatx.ErrTxClosed, "Emit")
	assert.Is(t, kept.Pipeline().Incr(ctx, rig.Key(t, tr, "a", "n")).Err(), luatx.ErrTxClosed, "a command")
}

func TestTransactNeedsAFunctionAnAggregateAndAnID(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	for says, c := range map[string]luatx.BatchItem{
		"function is nil":             {Aggregate: "a"},
		"aggregate id \"\": is empty": {Func: rig.Incr},
		"the id is empty":             {Aggregate: "a", Func: rig.Incr, Options: []luatx.Option{luatx.WithID("")}},
		"KeepReplies without WithID":  {Aggregate: "a", Func: rig.Incr, Options: []luatx.Option{luatx.KeepReplies()}},
	} {
		assert.ErrorContains(t, assert.ErrOf(tr.Transact(ctx, c.Aggregate, c.Func, c.Options...)), says, "Transact")
		assert.ErrorContains(t, tr.TransactBatch(ctx, []luatx.BatchItem{c})[0].Err, says, "TransactBatch")
	}
}

func TestEventsAreStoredOnceAndOnlyWithinCapacity(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.OutboxCapacity = 4 })
		emit := func(id string, events ...luatx.Event) error {
			return assert.ErrOf(tr.Transact(ctx, "a", emits(events...), luatx.WithID(id)))
		}
		body := []byte(`{"n":1}`)
		redistest.Must(t, emit("1", luatx.Event{Body: body}, luatx.Event{Body: body}, luatx.Event{ID: "given", Body: body}))
		assert.NoError(t, emit("2", luatx.Event{ID: "given", Body: body}), "the same event again")
		before := rig.Dump(t, client, tr)
		var failed *luatx.CommandError
		if err := emit("3", luatx.Event{ID: "given", Data: "other"}); !errors.As(err, &failed) || failed.Index != -1 {
			t.Errorf("the same event with another body: %v", err)
		}
		rig.NoTrace(t, client, tr, before)
		assert.Is(t, emit("4", luatx.Event{Body: body}, luatx.Event{Body: body}), luatx.ErrOutboxFull, "two events more than there is room for")
		rig.NoTrace(t, client, tr, before)
		assert.NoError(t, emit("5", luatx.Event{Body: body}), "the last place")
		if err := emit("6", luatx.Event{}); err == nil {
			t.Error("an event without a body was taken")
		}
	})
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	replicas := func(opts redis.UniversalOptions) redis.UniversalClient {
		opts.Addrs, opts.IsClusterMode = []string{"127.0.0.1:1"}, true
		client := redis.NewUniversalClient(&opts)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	for name, c := range map[string]struct {
		client redis.UniversalClient
		cfg    luatx.Config
		says   string
	}{
		"no client":        {nil, luatx.Config{Namespace: "n"}, "nil"},
		"replicas":         {replicas(redis.UniversalOptions{ReadOnly: true}), luatx.Config{Namespace: "n"}, "ReadOnly"},
		"the closest node": {replicas(redis.UniversalOptions{RouteByLatency: true}), luatx.Config{Namespace: "n"}, "RouteByLatency"},
		"any node":         {replicas(redis.UniversalOptions{RouteRandomly: true}), luatx.Config{Namespace: "n"}, "RouteRandomly"},
		"a ring":           {ring, luatx.Config{Namespace: "n"}, "Ring"},
		"no namespace":     {client, luatx.Config{}, "Namespace"},
		"a brace":          {client, luatx.Config{Namespace: "{n}"}, "Namespace"},
		"a long timeout":   {client, luatx.Config{Namespace: "n", CommitTimeout: 6 * 60e9}, "CommitTimeout"},
		"short retention":  {client, luatx.Config{Namespace: "n", Retention: 60e9}, "Retention"},
		"negative":         {client, luatx.Config{Namespace: "n", MaxBytes: -1}, "MaxBytes"},
		"many commands":    {client, luatx.Config{Namespace: "n", MaxCommands: 1 << 16}, "at most 65535"},
		"many partitions":  {client, luatx.Config{Namespace: "n", Keyspace: luatx.Partitions(20_000)}, "Keyspace"},
		"a brace prefixed": {client, luatx.Config{Namespace: "n", Keyspace: luatx.OwnTags().WithPrefix("{")}, "prefix"},
	} {
		assert.ErrorContains(t, assert.ErrOf(luatx.New(c.client, c.cfg)), c.says, "%s", name)
	}
}

func TestShardRejectsAnotherKeyspace(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx := redistest.Soon(t)
	commit := func(keyspace luatx.Keyspace) error {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Namespace, c.Keyspace = "same", keyspace })
		return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			k, err := tx.Key("k")
			if err != nil {
				return err
			}
			return tx.Pipeline().Set(ctx, k, 1, 0).Err()
		}))
	}
	redistest.Must(t, commit(luatx.Partitions(1)))
	tag := luatx.Partitions(1).Tags()[0]
	assert.NoError(t, commit(luatx.OwnTags()), "another shard")
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Namespace, c.Keyspace = "same", luatx.OwnTags() })
	_, err := tr.Transact(ctx, tag, func(tx *luatx.Tx) error {
		return tx.Pipeline().Set(ctx, "{"+tag+"}:k", 2, 0).Err()
	})
	assert.Is(t, err, luatx.ErrKeyspace, "own tags on the shard of a partition")
	for _, says := range []string{"1 partitions", "own tags", "or another namespace"} {
		assert.ErrorContains(t, err, says, "own tags on the shard of a partition")
	}
	assert.Equal(t, client.Get(ctx, "{"+tag+"}:k").Val(), "", "the key of another shard")
	_, _ = tr.Transact(ctx, tag, func(tx *luatx.Tx) error {
		assert.Is(t, assert.ErrOf(tx.Seen(ctx)), luatx.ErrKeyspace, "Seen on the shard of a partition")
		return nil
	}, luatx.WithID("1"))
}

func TestShardOfAnEarlierLayoutIsRejectedWithItsWholeIdentity(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		for _, identity := range []string{"luatx 0", "luatx 2, namespace shop, 256 partitions", "of another program"} {
			redistest.Must(t, client.HSet(ctx, shardOf(tr).Key("inbox:a"), "id", identity).Err())
			err := assert.ErrOf(tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID("1")))
			assert.Is(t, err, luatx.ErrKeyspace, "%s", identity)
			assert.ErrorContains(t, err, strconv.Quote(identity), "%s", identity)
		}
	})
}

func TestTxIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	n := rig.Key(t, tr, "a", "n")
	const workers, each = 8, 50
	run := func(also func(redis.Pipeliner)) error {
		return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range each {
						rig.NoError(t, luatx.Queued(tx.Pipeline().Incr(ctx, n)))
						rig.NoError(t, tx.Emit(luatx.Event{Body: []byte("{}")}))
						also(tx.Pipeline())
					}
				})
			}
			wg.Wait()
			return nil
		}))
	}
	assert.Is(t, run(func(p redis.Pipeliner) { p.FlushAll(ctx) }), luatx.ErrCommandRefused, "the transaction")
	assert.Equal(t, client.Exists(ctx, n).Val(), 0, "effects of a refused transaction")
	rig.NoError(t, run(func(redis.Pipeliner) {}))
	assert.Equal(t, client.Get(ctx, n).Val(), fmt.Sprint(workers*each), "applied")
}

func TestKeyDeletedInATransactionMayBecomeOfAnotherType(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		k := rig.Key(t, tr, "a", "k")
		client.Set(ctx, k, "text", 0)
		if _, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			if err := tx.Pipeline().Del(ctx, k).Err(); err != nil {
				return err
			}
			return tx.Pipeline().HSet(ctx, k, "f", "v").Err()
		}); err != nil || client.HGet(ctx, k, "f").Val() != "v" {
			t.Errorf("%v, %v", err, client.HGetAll(ctx, k))
		}
	})
}

func TestContextLeadsToTheTransactionElseThePipelineElseTheClient(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	plain := redistest.Soon(t)
	if pipe, ok := luatx.PipelineFromContext(plain); ok || pipe != nil {
		t.Errorf("a plain context carries %v", pipe)
	}
	assert.Equal(t, luatx.CmdableFromContext(plain, client), redis.Cmdable(client), "the client of a plain context")
	pipe := client.TxPipeline()
	carrying := luatx.ContextWithPipeline(plain, pipe)
	if got, ok := luatx.PipelineFromContext(carrying); !ok || got != pipe {
		t.Errorf("the pipeline came back as %v, %t", got, ok)
	}
	assert.Equal(t, luatx.CmdableFromContext(carrying, client), redis.Cmdable(pipe), "the client of a context with a pipeline")
	if _, ok := luatx.TxFromContext(carrying); ok {
		t.Error("a pipeline passes for a transaction")
	}
	inner := client.TxPipeline()
	if got, _ := luatx.PipelineFromContext(luatx.ContextWithPipeline(carrying, inner)); got != inner {
		t.Error("the outer pipeline hides the inner one")
	}

	tr := rig.NewTransactor(t, client)
	_, err := tr.Transact(plain, "a", func(tx *luatx.Tx) error {
		ctx := tx.Context(carrying)
		if got, ok := luatx.TxFromContext(ctx); !ok || got != tx {
			t.Errorf("the transaction came back as %v, %t", got, ok)
		}
		if got, ok := luatx.PipelineFromContext(ctx); !ok || got != tx.Pipeline() {
			t.Errorf("the transaction's pipeline came back as %v, %t", got, ok)
		}
		return luatx.CmdableFromContext(ctx, client).Set(ctx, rig.Key(t, tr, "a", "k"), "v", 0).Err()
	})
	redistest.Must(t, err)
	if pipe.Len() != 0 || client.Get(plain, rig.Key(t, tr, "a", "k")).Val() != "v" {
		t.Errorf("the write went to the pipeline around: %d commands on it", pipe.Len())
	}
}

func TestMain(m *testing.M) { redistest.Main(m) }
