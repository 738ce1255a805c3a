package commit_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
)

func TestItemOfABatchHasTheFateThatItWouldHaveAlone(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		client.Set(ctx, rig.Key(t, tr, "a", "text"), "text", 0)
		client.Set(ctx, rig.Key(t, tr, "a", "read"), "old", 0)
		once := []luatx.Option{luatx.WithID("once")}
		_, err := tr.Transact(ctx, "a", rig.Incr, once...)
		redistest.Must(t, err)
		failure := errors.New("no")
		runs := 0
		conflicting := func(tx *luatx.Tx) error { // reads a key that another transaction of the batch writes
			runs++
			return errors.Join(rig.Incr(tx), tx.Read().Get(ctx, rig.Key(t, tr, "a", "read")).Err())
		}
		is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
		failed := func(err error) bool {
			command, ok := errors.AsType[*luatx.CommandError](err)
			return ok && command.Index == 1
		}
		cases := []struct {
			item    luatx.BatchItem
			outcome luatx.Outcome
			err     func(error) bool
		}{
			{luatx.BatchItem{Aggregate: "a", Func: rig.Incr}, luatx.Committed, nil},
			{luatx.BatchItem{Aggregate: "a", Func: func(*luatx.Tx) error { return failure }}, 0, is(failure)},
			{luatx.BatchItem{Aggregate: "a", Func: rig.Incr, Options: once}, luatx.Duplicate, nil},
			{luatx.BatchItem{Aggregate: "a", Func: func(*luatx.Tx) error { return failure }, Options: once}, luatx.Duplicate, nil},
			{luatx.BatchItem{Aggregate: "a", Func: func(tx *luatx.Tx) error {
				return errors.Join(rig.Incr(tx), luatx.Queued(tx.Pipeline().HIncrBy(ctx, rig.Key(t, tr, "a", "text"), "f", 1)), rig.Incr(tx))
			}}, 0, failed},
			{luatx.BatchItem{Aggregate: "b", Func: rig.Incr}, luatx.Committed, nil},
			{luatx.BatchItem{Aggregate: "b", Func: func(tx *luatx.Tx) error {
				return tx.Pipeline().Set(ctx, rig.Key(t, tr, "a", "elsewhere"), 1, 0).Err()
			}}, 0, is(luatx.ErrCrossSlot)},
			{luatx.BatchItem{Aggregate: "", Func: rig.Incr}, 0, func(err error) bool { return strings.Contains(err.Error(), "aggregate") }},
			{luatx.BatchItem{Aggregate: "b"}, 0, func(err error) bool { return strings.Contains(err.Error(), "nil") }},
			{luatx.BatchItem{Aggregate: "b", Func: func(*luatx.Tx) error { return nil }}, luatx.Committed, nil},
			{luatx.BatchItem{Aggregate: "a", Func: func(tx *luatx.Tx) error {
				return tx.Pipeline().Set(ctx, rig.Key(t, tr, "a", "read"), "new", 0).Err()
			}}, luatx.Committed, nil},
			{luatx.BatchItem{Aggregate: "a", Func: conflicting}, luatx.Committed, nil},
			{luatx.BatchItem{Aggregate: "a", Func: rig.Incr, Options: []luatx.Option{luatx.WithID("new")}}, luatx.Committed, nil},
			{luatx.BatchItem{Aggregate: "a", Func: rig.Incr, Options: []luatx.Option{luatx.WithID("new")}}, luatx.Duplicate, nil},
		}
		var batch []luatx.BatchItem
		for _, c := range cases {
			batch = append(batch, c.item)
		}
		for i, got := range tr.TransactBatch(ctx, batch) {
			want := cases[i]
			if got.Outcome != want.outcome || (want.err == nil) != (got.Err == nil) || want.err != nil && !want.err(got.Err) {
				t.Errorf("item %d: %v, %v; want %v", i, got.Outcome, got.Err, want.outcome)
			}
		}
		assert.Equal(t, runs, 2, "runs of the function with the conflict")
		for aggregate, want := range map[string]string{"a": "4", "b": "1"} {
			assert.Equal(t, client.Get(ctx, rig.Key(t, tr, aggregate, "n")).Val(), want, "effects on %s", aggregate)
		}
		assert.Equal(t, len(tr.TransactBatch(ctx, nil)), 0, "results of an empty batch")
		if _, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return tr.TransactBatch(tx.Context(ctx), batch[:1])[0].Err
		}); !errors.Is(err, luatx.ErrNested) {
			t.Errorf("a batch inside a transaction: %v", err)
		}
	})
}

func TestFirstCommitOfATransactorMayBeABatch(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewUnchecked(t, client)
	for i, result := range tr.TransactBatch(redistest.Soon(t), []luatx.BatchItem{{Aggregate: "a", Func: rig.Incr}, {Aggregate: "b", Func: rig.Incr}}) {
		if result.Err != nil || result.Outcome != luatx.Committed {
			t.Errorf("item %d: %v, %v", i, result.Outcome, result.Err)
		}
	}
}

func TestItemThatTheServerRejectsDoesNotChangeTheClockOfTheOthers(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	attempts := 0
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Observer.Committed = func(_ context.Context, c luatx.Commit) { attempts = c.Attempts }
	})
	rig.Warm(t, tr)
	rig.Grant(t, admin, "resetkeys", "~*{a}*")
	results := tr.TransactBatch(redistest.Soon(t), []luatx.BatchItem{{Aggregate: "a", Func: rig.Incr}, {Aggregate: "b", Func: rig.Incr}})
	if results[0].Err != nil || results[1].Err == nil {
		t.Fatalf("%v, and without a right: %v", results[0].Err, results[1].Err)
	}
	redistest.Must(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", rig.Incr)))
	assert.Equal(t, attempts, 1, "round trips of the next commit")
}

func TestLargeBatchTakesFewScriptsAndEachItemHasItsOwnReplies(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	const items = 1000
	batch, counts := make([]luatx.BatchItem, items), make([]*redis.IntCmd, items)
	for i := range batch {
		batch[i] = luatx.BatchItem{Aggregate: fmt.Sprint("a", i%2), Func: func(tx *luatx.Tx) error {
			n, err := tx.Key("n")
			counts[i] = tx.Pipeline().Incr(ctx, n)
			return err
		}}
	}
	seen := map[string]bool{}
	for i, result := range tr.TransactBatch(ctx, batch) {
		if result.Err != nil || result.Outcome != luatx.Committed {
			t.Errorf("item %d: %+v", i, result)
		}
		seen[fmt.Sprint(i%2, "-", counts[i].Val())] = true
	}
	assert.Equal(t, len(seen), items, "different replies")
	for i := range 2 {
		assert.Equal(t, client.Get(ctx, rig.Key(t, tr, fmt.Sprint("a", i), "n")).Val(), strconv.Itoa(items/2), "effects on account %d", i)
	}
	if n := rig.Executed(t, client); n > 2*items/32+2 {
		t.Errorf("%d scripts for %d transactions", n, items)
	}
}

func TestItemsOfABatchGetTheirOutcomeOnABadNetwork(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]respproxy.Action{"reply lost": respproxy.CutReply(), "request lost": respproxy.CutRequest(), "half a reply": respproxy.SplitReply(), "twice": respproxy.Duplicate()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			proxy := redistest.Proxy(t, server.Addr())
			ctx, tr := redistest.Soon(t), rig.NewTransactor(t, redistest.Client(t, proxy.Addr()))
			rig.Warm(t, tr)
			proxy.Next(1, respproxy.Command("EVALSHA"), fault)
			batch := make([]luatx.BatchItem, 20)
			for i := range batch {
				batch[i] = luatx.BatchItem{Aggregate: fmt.Sprint("a", i%3), Func: rig.Incr}
			}
			replayed := 0
			for i, result := range tr.TransactBatch(ctx, batch) {
				assert.NoError(t, result.Err, "item %d", i)
				if result.Outcome == luatx.Replayed {
					replayed++
				}
			}
			assert.Equal(t, replayed > 0, fault == respproxy.CutReply() || fault == respproxy.SplitReply(), "items replayed: %d", replayed)
			sum := 0
			for i := range 3 {
				n, _ := server.Client(t).Get(ctx, rig.Key(t, tr, fmt.Sprint("a", i), "n")).Int()
				sum += n
			}
			assert.Equal(t, sum, len(batch), "effects")
		})
	}
}
