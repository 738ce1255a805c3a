package commit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// emitAll commits events in one transaction.
func emitAll(t testing.TB, tr *luatx.Transactor, aggregate string, events ...luatx.Event) error {
	t.Helper()
	return assert.ErrOf(tr.Transact(redistest.Soon(t), aggregate, emits(events...)))
}

// emits returns the function of a transaction that emits events.
func emits(events ...luatx.Event) func(*luatx.Tx) error {
	return func(tx *luatx.Tx) error {
		var errs []error
		for _, event := range events {
			errs = append(errs, tx.Emit(event))
		}
		return errors.Join(errs...)
	}
}

// gauge reads a count of the shard of aggregate a.
func gauge(t testing.TB, tr *luatx.Transactor, name string) int {
	t.Helper()
	return int(rig.Count(t, tr, shardOf(tr).Slot, name))
}

func shardOf(tr *luatx.Transactor) shard.Shard {
	tag, _ := tr.Keyspace().Tag("a")
	return link.Of(tr).Scripts.Shard(slot.OfTag(tag))
}

// settle settles an event in the shard of aggregate a.
func settle(t testing.TB, tr *luatx.Transactor, id, what string) {
	t.Helper()
	settled, err := link.Of(tr).Scripts.Settle(redistest.Soon(t), shardOf(tr), shard.Settling{Attempts: 9, Retention: time.Hour},
		[]shard.Settlement{{ID: id, What: what, Class: "refused"}})
	if err != nil || settled.Done[0] != what {
		t.Errorf("%s: %v, %v", id, settled, err)
	}
}

// bodyOf returns a body with the given size, at least 8 bytes.
func bodyOf(size int) []byte {
	return fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("x", size-len(`{"a":""}`)))
}

func TestInvalidEventsAreRejected(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.OutboxBytes = 100 })
	now := time.Now()
	for want, event := range map[string]luatx.Event{
		"no body":        {},
		"set Data and A": {Body: []byte{}},
		"no CloudEvent":  {Body: []byte("=x")},
		"comes twice":    {Body: []byte(`{"id":"1","id":"1"}`)},
		"JSON object":    {Body: []byte(`"text"`)},
		"want a time":    {Body: []byte(`{"time":1}`)},
		"leave one out":  {Body: []byte("{}"), Data: 1},
		"cannot encode":  {Data: func() {}},
		`the id "other"`: {ID: "id", Attributes: message.Attributes{"id": "other"}},
		"Key or At":      {Body: []byte("{}"), Key: "k", At: now},
		"256 bytes":      {Body: []byte("{}"), Key: strings.Repeat("k", 257)},
		"UTF-8":          {Body: []byte("{}"), Key: "\xff"},
		"1970 to 9999":   {Body: []byte("{}"), At: time.UnixMilli(-1)},
		"years 1970":     {Body: []byte("{}"), At: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"OutboxBytes, ":  {Body: bodyOf(101)},
	} {
		assert.ErrorContains(t, emitAll(t, tr, "a", event), want, "emitted")
		event.ID = "id"
		assert.ErrorContains(t, assert.ErrOf(tr.Enqueue(redistest.Soon(t), "a", event)), want, "enqueued")
	}
	assert.ErrorContains(t, assert.ErrOf(tr.Enqueue(redistest.Soon(t), "a", luatx.Event{Body: []byte("{}")})), "no id", "enqueued without an id")
	most := luatx.Event{ID: "id", Body: bodyOf(100)} // 101 bytes with the mark of a given id
	assert.ErrorContains(t, emitAll(t, tr, "a", most), "101 bytes", "emitted")
	assert.ErrorContains(t, assert.ErrOf(tr.Enqueue(redistest.Soon(t), "a", most)), "101 bytes", "enqueued")
	for name, event := range map[string]luatx.Event{
		"longest key": {Body: []byte("{}"), Key: strings.Repeat("k", 256)},
		"first time":  {Body: []byte("{}"), At: time.UnixMilli(0)},
		"last time":   {Body: []byte("{}"), At: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
		"most bytes":  {Body: bodyOf(100)},
	} {
		redistest.Must(t, emitAll(t, tr, "b"+name, event)) // each has an outbox of its own, without room for two events
	}
}

// due returns the ids that a claim leases, and when the next event is due.
func due(t testing.TB, tr *luatx.Transactor) (ids []string, next time.Duration) {
	t.Helper()
	claim, err := link.Of(tr).Scripts.Claim(redistest.Soon(t), shardOf(tr), shard.Claiming{Limit: 100, Lease: time.Hour, Attempts: 10})
	redistest.Must(t, err)
	for _, e := range claim.Events {
		ids = append(ids, e.ID)
	}
	return ids, claim.Next
}

// without returns the shard's data except for one key.
func without(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, name string) redistest.State {
	t.Helper()
	state := rig.Dump(t, client, tr)
	delete(state.Keys, shardOf(tr).Key(name))
	return state
}

func TestFailedTransactionUndoesOnlyItsOwnOrderedAndScheduledEvents(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		later := time.Now().Add(time.Hour)
		events := func(name string) []luatx.Event {
			return []luatx.Event{
				{ID: name + "1", Key: "k%\x00", Body: []byte("{}")},
				{ID: name + "2", Key: "k%\x00", Body: []byte("{}")},
				{ID: name + "3", At: later, Body: []byte("{}")},
				{ID: name + "4", Body: []byte("{}")},
			}
		}
		text := rig.Key(t, tr, "a", "text")
		client.Set(redistest.Soon(t), text, "x", 0)
		item := func(name, command string) luatx.BatchItem {
			return luatx.BatchItem{Aggregate: "a", Func: func(tx *luatx.Tx) error {
				err := emits(events(name)...)(tx)
				tx.Pipeline().Set(t.Context(), text, name, 0)
				return errors.Join(err, luatx.Queued(tx.Pipeline().Do(t.Context(), command, text, "x")))
			}}
		}
		results := tr.TransactBatch(redistest.Soon(t), []luatx.BatchItem{item("a", "APPEND"), item("refused", "LPUSH"), item("c", "APPEND")})
		var failed *luatx.CommandError
		if results[0].Err != nil || !errors.As(results[1].Err, &failed) || results[2].Err != nil {
			t.Fatal(results)
		}
		before := without(t, client, tr, "seq")
		if got := fmt.Sprint(before); strings.Contains(got, "refused") {
			t.Errorf("what failed is there: %s", got)
		}
		again := tr.TransactBatch(redistest.Soon(t), []luatx.BatchItem{item("refused", "LPUSH")})
		if again[0].Err == nil {
			t.Error("no failure")
		}
		if diff := redistest.Diff(before, without(t, client, tr, "seq")); diff != "" {
			t.Errorf("left a trace: %s", diff)
		}
		if n, all := gauge(t, tr, "events"), gauge(t, tr, "enqueued"); n != 8 || all != 8 {
			t.Errorf("%d events, %d enqueued", n, all)
		}
		if ids, next := due(t, tr); fmt.Sprint(ids) != "[a1 a4 c4]" || next <= 0 || next > time.Hour {
			t.Errorf("due: %v, the next in %v", ids, next)
		}
	})
}

func TestEventsOfEachTransactionOfAScriptAreDueAsItSays(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		delays := []time.Duration{time.Millisecond, 0, 10 * 24 * time.Hour, 0, time.Hour, 10 * 24 * time.Hour}
		var batch []commit.Commit
		for i, delay := range delays {
			name := fmt.Sprint("e", i)
			batch = append(batch, commit.Commit{
				Digest: fmt.Sprintf("%-16s", name), Token: fmt.Sprintf("%-10s", name), NotAfter: time.Now().Add(time.Minute),
				Delay: delay, Events: []shard.Event{{ID: name, Body: []byte("{}")}},
			})
		}
		outcomes, now, err := rig.Commit(redistest.Soon(t), tr, shardOf(tr), batch)
		redistest.Must(t, err)
		for i, out := range outcomes {
			at := client.ZScore(t.Context(), shardOf(tr).Key("pending"), fmt.Sprint("e", i)).Val()
			if want := now.Add(delays[i]).UnixMilli(); out.State != commit.Committed || int64(at) != want {
				t.Errorf("event %d, delayed by %v: %+v, due at %.0f, want %d", i, delays[i], out, at, want)
			}
		}
	})
}

func TestOnlyTheFirstNewEventOfAnEmptyShardWakes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		emitting := func(name string, events ...string) commit.Commit {
			tx := commit.Commit{Digest: fmt.Sprintf("%-16s", name), Token: fmt.Sprintf("%-10s", name), NotAfter: time.Now().Add(time.Hour)}
			for _, id := range events {
				tx.Events = append(tx.Events, shard.Event{ID: id, Body: []byte("{}"), Given: true})
			}
			return tx
		}
		sent := func(batch ...commit.Commit) (woken []bool) {
			t.Helper()
			outcomes, _, err := rig.Commit(redistest.Soon(t), tr, shardOf(tr), batch)
			redistest.Must(t, err)
			for _, out := range outcomes {
				assert.Equal(t, out.State, commit.Committed, "%+v", out)
				assert.Equal(t, out.Acked, false, "acknowledged without an input")
				woken = append(woken, out.Woken)
			}
			return woken
		}
		for _, c := range []struct {
			got  []bool
			want string
		}{
			{sent(emitting("1")), "[false]"},
			{sent(emitting("2", "a")), "[true]"},
			{sent(emitting("4", "a")), "[false]"},
		} {
			assert.Equal(t, fmt.Sprint(c.got), c.want, "the wake-ups")
		}
		settle(t, tr, "a", "sent")
		if got := sent(emitting("6", "a")); got[0] {
			t.Error("a known event wakes nobody")
		}
		if got := sent(emitting("7"), emitting("8", "d"), emitting("9", "e")); fmt.Sprint(got) != "[false true false]" {
			t.Errorf("in a batch: %v", got)
		}

		// Events stay in the outbox from here on, so a commit wakes relays only if the last claim left no due events.
		scripts := link.Of(tr).Scripts
		claim := func(limit int) {
			t.Helper()
			_, err := scripts.Claim(redistest.Soon(t), shardOf(tr), shard.Claiming{Limit: limit, Lease: time.Hour, Attempts: 10})
			redistest.Must(t, err)
		}
		claim(1)
		if got := sent(emitting("10", "f")); got[0] {
			t.Error("woken, although the claim has left an event that is due")
		}
		claim(10)
		if got := append(sent(emitting("11", "g")), sent(emitting("12", "h"))...); fmt.Sprint(got) != "[true false]" {
			t.Errorf("after a claim of all events: %v, want one wake-up", got)
		}
		claim(10)
		inline := emitting("13", "i")
		inline.Delay = time.Hour
		if got := append(sent(inline), sent(emitting("14", "j"))...); fmt.Sprint(got) != "[false true]" {
			t.Errorf("behind an event of an inline relay: %v, want a wake-up for the next one", got)
		}
	})
}

func TestProceduresOrderAndScheduleTheirEventsWithinTheRules(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		procedures := withProcedures(
			luatx.Procedure{Name: "lane", Source: `for i = 1, 3 do emit('{}', ARGV[1] .. i, {key = 'a%\0b'}) end`},
			luatx.Procedure{Name: "later", Source: `emit({type = 't', source = '/s', id = 'later'}, nil, {at = NOW + 3600000})`},
			luatx.Procedure{Name: "both", Source: `emit('{}', 'x', {key = 'k', at = 1})`},
			luatx.Procedure{Name: "text", Source: `emit('{}', 'x', 'k')`},
			luatx.Procedure{Name: "time", Source: `emit('{}', 'x', {at = -1})`},
			luatx.Procedure{Name: "empty", Source: `emit('{}', 'x', {key = ''})`},
			luatx.Procedure{Name: "deaf", Source: `for i = 1, 9 do pcall(emit, '{}', 'deaf' .. i, {key = 'deaf'}) end`},
		)
		tr := rig.NewTransactor(t, client, procedures, func(c *luatx.Config) { c.LaneCapacity = 6 })
		call := func(name string, args ...any) error {
			return assert.ErrOf(tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error { tx.Call(name, nil, args...); return nil }))
		}
		for _, err := range []error{call("lane", "a"), call("later")} {
			redistest.Must(t, err)
		}
		redistest.Must(t, emitAll(t, tr, "a", luatx.Event{ID: "b1", Key: "a%\x00b", Body: []byte("{}")}))
		before := without(t, client, tr, "seq")
		for name, want := range map[string]string{"both": "not both", "text": "no table", "time": "no time", "empty": "1 to 256"} {
			assert.ErrorContains(t, call(name), want, "%s", name)
		}
		wantFull(t, call("lane", "c"), "lane")
		wantFull(t, call("deaf"), "lane")
		if diff := redistest.Diff(before, without(t, client, tr, "seq")); diff != "" {
			t.Errorf("left a trace: %s", diff)
		}
		if ids, next := due(t, tr); fmt.Sprint(ids) != "[a1]" || next < time.Minute {
			t.Errorf("due: %v, next %v", ids, next)
		}
		if n := client.ZLexCount(redistest.Soon(t), shardOf(tr).Key("lanes"), "[a%25%00b\x00", "(a%25%00b\x01").Val(); n != 4 {
			t.Errorf("%d events in the lane", n)
		}
	})
}

// TestSizeOfAnEventChangesNothingOnceItsTransactionIsCompiled stores small and large events with transactions that are alike.
func TestSizeOfAnEventChangesNothingOnceItsTransactionIsCompiled(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		link.Of(tr).Commits.CompileAfter(2)
		bodies := map[string]string{}
		for i, size := range []int{1, 10, 100, 1000, 20_000, 100, 100_000, 1} {
			id := fmt.Sprint("e", i)
			bodies[id] = fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/s","type":"t","data":%q}`, id, strings.Repeat("x", size))
			redistest.Must(t, assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				tx.Pipeline().HIncrBy(ctx, rig.Key(t, tr, "a", "h"), "n", 1)
				return tx.Emit(luatx.Event{ID: id, Body: []byte(bodies[id])})
			}, luatx.WithID(id))))
			link.Of(tr).Commits.Wait()
		}
		stored := 0
		for e, err := range outbox.NewStore(tr).List(ctx, outbox.Pending, outbox.ListOptions{}) {
			redistest.Must(t, err)
			if stored++; string(e.Body) != bodies[e.ID] {
				t.Errorf("%s has a body of %d bytes, want %d", e.ID, len(e.Body), len(bodies[e.ID]))
			}
		}
		assert.Equal(t, stored, len(bodies), "stored events")
	})
}
