package commit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

func TestClaimRejectsASecondIDAndOneAfterAnEvent(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	var kept *luatx.Tx
	redistest.Must(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
		kept = tx
		assert.ErrorContains(t, tx.Claim(luatx.MessageID{Source: "/s"}), "the id is empty", "without an ID")
		redistest.Must(t, tx.Claim(luatx.MessageID{Source: "/s", ID: "1"}))
		assert.Is(t, tx.Claim(luatx.MessageID{Source: "/s", ID: "1"}), luatx.ErrNested, "the second")
		return nil
	})))
	assert.Is(t, kept.Claim(luatx.MessageID{ID: "1"}), luatx.ErrTxClosed, "after the transaction")
	redistest.Must(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
		redistest.Must(t, rig.Emit(tx))
		assert.ErrorContains(t, tx.Claim(luatx.MessageID{ID: "2"}), "put inbox.Middleware before outbox.Middleware", "after an event")
		return nil
	})))
}

func TestPublishTakesEncodedJSONAndMessagesWithoutAttributes(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	jobs := rig.Key(t, tr, "a", "jobs")
	for _, c := range []struct {
		data any
		want map[string]any
	}{
		{json.RawMessage(`{"n":1}`), map[string]any{"data": `{"n":1}`}},
		{[]byte("bytes"), map[string]any{"data": "bytes"}},
		{nil, map[string]any{}},
		{map[string]int{"n": 2}, map[string]any{"data": `{"n":2}`, "content-type": "application/json"}},
	} {
		redistest.Must(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return tx.Publish(jobs, message.New(c.data, nil, nil))
		})))
		entries, err := client.XRevRangeN(redistest.Soon(t), jobs, "+", "-", 1).Result()
		redistest.Must(t, err)
		for _, field := range []string{"data", "content-type"} {
			if got := entries[0].Values[field]; got != c.want[field] {
				t.Errorf("%v: field %s is %v, want %v", c.data, field, got, c.want[field])
			}
		}
		if entries[0].Values["ce_id"] == nil {
			t.Errorf("%v has no id", c.data)
		}
	}
}

func TestEnqueueRejectsMoreBytesThanATransactionMayHave(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.MaxBytes = 1000 })
	event := func(id string, size int) luatx.Event {
		body := fmt.Sprintf(`{"id":%q,"data":"%s"}`, id, strings.Repeat("x", size))
		return luatx.Event{ID: id, Body: []byte(body)}
	}
	whole := 1000 - len(event("1", 0).Body) - len("1")
	_, err := tr.Enqueue(redistest.Soon(t), "a", event("1", whole+1))
	assert.Is(t, err, luatx.ErrTooLarge, "one byte too many")
	_, err = tr.Enqueue(redistest.Soon(t), "a", event("1", whole))
	redistest.Must(t, err)
	_, err = tr.Enqueue(redistest.Soon(t), "a", event("2", whole/2), event("3", whole/2))
	assert.Is(t, err, luatx.ErrTooLarge, "two events")
}

func TestEnqueueAcceptsAsManyEventsAsATransactionHasCommands(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.MaxCommands = 2 })
	events := []luatx.Event{{ID: "1", Body: []byte("{}")}, {ID: "2", Body: []byte("{}")}, {ID: "3", Body: []byte("{}")}}
	_, err := tr.Enqueue(redistest.Soon(t), "a", events...)
	assert.Is(t, err, luatx.ErrTooLarge, "three events")
	assert.ErrorContains(t, err, "3 events, more than MaxCommands, 2", "three events")
	n, err := tr.Enqueue(redistest.Soon(t), "a", events[:2]...)
	redistest.Must(t, err)
	assert.Equal(t, n, 2, "events that were added")
}

func TestEventsCountAmongTheLimitsOfATransaction(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.MaxCommands, c.MaxBytes = 3, 1000 })
	run := func(events ...luatx.Event) error {
		return assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return errors.Join(rig.Incr(tx), emits(events...)(tx))
		}))
	}
	event := func(id string, size int) luatx.Event { return luatx.Event{ID: id, Body: bodyOf(size)} }
	redistest.Must(t, run(event("1", 400), event("2", 400)))
	assert.ErrorContains(t, run(event("3", 10), event("4", 10), event("5", 10)), "4 commands, events and guarded reads, more than MaxCommands", "an event too many")
	assert.ErrorContains(t, run(event("6", 500), event("7", 500)), "more than MaxBytes", "bodies that are too large")
	assert.ErrorContains(t, run(event(strings.Repeat("x", 500), 500)), "more than MaxBytes", "an id and a body that are too large")
}

func TestReadAfterACallOfItsKeyIsRejected(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, withProcedures(luatx.Procedure{Name: "set", Keys: []string{"k"}, Source: "redis.call('SET', k, 1)"}))
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		k := rig.Key(t, tr, "a", "k")
		tx.Call("set", []string{k})
		assert.Is(t, tx.Read().Get(ctx, k).Err(), luatx.ErrReadAfterWrite, "the key of the call")
		if err := tx.Read().Get(ctx, k+"2").Err(); errors.Is(err, luatx.ErrReadAfterWrite) {
			t.Errorf("another key: %v", err)
		}
		return nil
	})
	redistest.Must(t, err)
}

func TestNoCompileKeepsEveryPlanInTheGeneralScript(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for off, want := range map[bool]int{false: 1, true: 0} {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.NoCompile = off })
		for range 101 {
			redistest.Must(t, assert.ErrOf(tr.Transact(redistest.Soon(t), "a", rig.Incr)))
		}
		commits := link.Of(tr).Commits
		commits.Wait()
		assert.Equal(t, len(commits.Plans()), want, "compiled plans with NoCompile %t", off)
	}
}

// TestCompiledScriptIsUsedAgainOnceATombstoneHasPassed writes a tombstone, as a client does if a reply was lost.
func TestCompiledScriptIsUsedAgainOnceATombstoneHasPassed(t *testing.T) {
	t.Parallel()
	redistest.Servers(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		commits, home := link.Of(tr).Commits, link.Of(tr).Scripts.Shard(slot.OfTag("a"))
		commits.CompileAfter(1)
		commit := func(times int) {
			for range times {
				redistest.Must(t, assert.ErrOf(tr.Transact(ctx, "a", rig.Incr)))
			}
		}
		commit(1)
		commits.Wait()
		for _, c := range []struct {
			until time.Duration
			left  int64
		}{{time.Minute, 4}, {-30 * time.Second, 8}, {-2 * time.Minute, 10}} { // the horizon never decreases, so each case has its own inbox
			redistest.Must(t, client.Del(ctx, home.Key("inbox:a")).Err())
			commit(1) // left, because there is no inbox
			_, _, _, err := commits.Resolve(ctx, home, "digest0000000000", nil, "token00000", time.Now().Add(c.until))
			redistest.Must(t, err)
			for began := time.Now().UnixMilli(); time.Now().UnixMilli() == began; { // a compiled script leaves commits of an inbox's first millisecond
				redistest.Must(t, client.Ping(ctx).Err())
			}
			commit(3)
			assert.Equal(t, commits.Plans()[0].Left, c.left, "transactions that the compiled script has left, the horizon in %v", c.until)
		}
	})
}
