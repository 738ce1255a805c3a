package commit_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// emitAll commits events in one transaction.
func emitAll(t testing.TB, tr *luatx.Transactor, aggregate string, events ...luatx.Event) error {
	t.Helper()
	_, err := tr.Transact(redistest.Soon(t), aggregate, func(tx *luatx.Tx) error {
		for _, event := range events {
			if err := tx.Emit(event); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// gauge reads a count of the shard of aggregate a.
func gauge(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, name string) int {
	t.Helper()
	fields, err := client.HGetAll(redistest.Soon(t), shardOf(tr).Key("counts")).Result()
	redistest.Must(t, err)
	return int(shard.CountsOf(fields)[name])
}

func shardOf(tr *luatx.Transactor) shard.Shard {
	tag, _ := tr.Keyspace().Tag("a")
	return link.Of(tr).Scripts.Shard(slot.OfTag(tag))
}

func wantFull(t testing.TB, err error, what string) {
	t.Helper()
	var full *luatx.OutboxFullError
	if !errors.As(err, &full) || full.What != what || !errors.Is(err, luatx.ErrOutboxFull) || full.Limit == 0 || !strings.Contains(err.Error(), strconv.Itoa(full.Limit)) {
		t.Errorf("%v, want that %s is full", err, what)
	}
}

// settle settles an event of aggregate a's shard.
func settle(t testing.TB, tr *luatx.Transactor, id, what string) {
	t.Helper()
	settled, err := link.Of(tr).Scripts.Settle(redistest.Soon(t), shardOf(tr), shard.Settling{Attempts: 9, Retention: time.Hour},
		[]shard.Settlement{{ID: id, What: what, Class: "refused"}})
	if err != nil || settled.Done[0] != what {
		t.Errorf("%s: %v, %v", id, settled, err)
	}
}

// TestCapacityIsExact holds that however many commit at once, the outbox takes as much as it may and nothing beyond,
// of events, of bytes and of a lane.
func TestCapacityIsExact(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*luatx.Config){
		"events": func(c *luatx.Config) { c.OutboxCapacity = 100 },
		"bytes":  func(c *luatx.Config) { c.OutboxBytes = 1000 },
		"lane":   func(c *luatx.Config) { c.LaneCapacity = 100 },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				tr := rig.NewTransactor(t, client, change)
				committed := rig.Key(t, tr, "a", "committed")
				var next, taken atomic.Int64
				var committers sync.WaitGroup
				for range 64 {
					committers.Go(func() {
						for next.Load() < 300 {
							n := next.Add(1)
							_, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
								for i := range n%3 + 1 {
									event := luatx.Event{ID: fmt.Sprint(n, "-", i), Body: []byte("0123456789")}
									if what == "lane" {
										event.Key = "k"
									}
									if err := tx.Emit(event); err != nil {
										return err
									}
								}
								return luatx.Queued(tx.Pipeline().IncrBy(t.Context(), committed, n%3+1))
							})
							if err == nil {
								taken.Add(n%3 + 1)
							} else {
								wantFull(t, err, what)
							}
						}
					})
				}
				committers.Wait()
				for i := 0; ; i++ { // the last places
					event := luatx.Event{ID: fmt.Sprint("last-", i), Body: []byte("0123456789")}
					if what == "lane" {
						event.Key = "k"
					}
					if _, err := tr.Enqueue(redistest.Soon(t), "a", event); err != nil {
						wantFull(t, err, what)
						break
					}
					taken.Add(1)
					client.Incr(t.Context(), committed)
				}
				entries := client.HLen(t.Context(), shardOf(tr).Key("entries")).Val()
				sum, _ := client.Get(t.Context(), committed).Int64()
				if entries != 100 || sum != 100 || taken.Load() != 100 || gauge(t, client, tr, "events") != 100 || gauge(t, client, tr, "bytes") != 1000 {
					t.Errorf("%d events, %d committed, %d reported, gauges %v", entries, sum, taken.Load(), client.HGetAll(t.Context(), shardOf(tr).Key("counts")).Val())
				}
				known := client.HKeys(t.Context(), shardOf(tr).Key("entries")).Val()[0]
				again := luatx.Event{ID: known, Body: []byte("0123456789")}
				if what == "lane" {
					again.Key = "k"
				}
				if err := emitAll(t, tr, "a", again); err != nil {
					t.Errorf("a known event needs no room: %v", err)
				}
			})
		})
	}
}

// TestParkedCapacity holds that a shard with too many parked events takes none until a person has acted, that what it
// holds may still be parked, and that a lane which stands still leaves the others their room.
func TestParkedCapacity(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.ParkedCapacity, c.LaneCapacity = 2, 3 })
		event := func(id, key string) luatx.Event { return luatx.Event{ID: id, Key: key, Body: []byte("{}")} }
		redistest.Must(t, emitAll(t, tr, "a", event("1", "k"), event("2", "k"), event("3", "k"), event("4", ""), event("5", "")))
		settle(t, tr, "1", "parked")
		before := rig.Dump(t, client, tr)
		wantFull(t, emitAll(t, tr, "a", event("6", "k")), "lane")
		rig.NoTrace(t, client, tr, before)
		if err := emitAll(t, tr, "a", event("7", "other"), event("8", "")); err != nil {
			t.Errorf("beside a lane that stands still: %v", err)
		}
		settle(t, tr, "4", "parked")
		wantFull(t, emitAll(t, tr, "a", event("9", "")), "parked")
		_, err := tr.Enqueue(redistest.Soon(t), "a", event("9", ""))
		wantFull(t, err, "parked")
		if err := emitAll(t, tr, "a"); err != nil {
			t.Errorf("a transaction without events: %v", err)
		}
		if err := emitAll(t, tr, "a", event("8", "")); err != nil {
			t.Errorf("a known event: %v", err)
		}
		settle(t, tr, "5", "parked")
		if n := gauge(t, client, tr, "parked"); n != 3 {
			t.Errorf("%d parked", n)
		}
	})
}

func TestParkedBytesCloseAShard(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.ParkedBytes = 1000 })
		event := func(id string, size int) luatx.Event {
			return luatx.Event{ID: id, Body: bytes.Repeat([]byte("x"), size)}
		}
		redistest.Must(t, emitAll(t, tr, "a", event("1", 600), event("2", 600), event("3", 10)))
		settle(t, tr, "1", "parked")
		if err := emitAll(t, tr, "a", event("4", 10)); err != nil {
			t.Errorf("below the bound: %v", err)
		}
		settle(t, tr, "2", "parked")
		before := rig.Dump(t, client, tr)
		wantFull(t, emitAll(t, tr, "a", event("5", 10)), "parked bytes")
		_, err := tr.Enqueue(redistest.Soon(t), "a", event("5", 10))
		wantFull(t, err, "parked bytes")
		rig.NoTrace(t, client, tr, before)
		if err := emitAll(t, tr, "a", event("3", 10)); err != nil {
			t.Errorf("a known event: %v", err)
		}
		if n := gauge(t, client, tr, "parked_bytes"); n != 1200 {
			t.Errorf("%d parked bytes, want 1200", n)
		}
		settle(t, tr, "2", "sent")
		if err := emitAll(t, tr, "a", event("5", 10)); err != nil {
			t.Errorf("after one was sent: %v", err)
		}
		if n := gauge(t, client, tr, "parked_bytes"); n != 600 {
			t.Errorf("%d parked bytes, want 600", n)
		}
	})
}

func TestTransactionIsRefusedBeforeItsFirstWriteIfTheOutboxIsFull(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	for what, c := range map[string]struct {
		change func(*luatx.Config)
		parked bool
	}{
		"events":       {func(c *luatx.Config) { c.OutboxCapacity = 1 }, false},
		"bytes":        {func(c *luatx.Config) { c.OutboxBytes = 100 }, false},
		"parked":       {func(c *luatx.Config) { c.ParkedCapacity = 1 }, true},
		"parked bytes": {func(c *luatx.Config) { c.ParkedBytes = 80 }, true},
	} {
		tr := rig.NewTransactor(t, client, c.change)
		redistest.Must(t, emitAll(t, tr, "a", luatx.Event{ID: "1", Body: bytes.Repeat([]byte("x"), 80)}))
		if c.parked {
			settle(t, tr, "1", "parked")
		}
		before := writes(t, client)
		wantFull(t, emitAll(t, tr, "a", luatx.Event{ID: "2", Body: bytes.Repeat([]byte("x"), 80)}), what)
		if n := writes(t, client) - before; n != 0 {
			t.Errorf("%s: the server counts %d changes", what, n)
		}
	}
}

// writes returns how many changes a server has counted.
func writes(t *testing.T, client *redis.Client) int {
	t.Helper()
	text, err := client.InfoMap(redistest.Soon(t), "persistence").Result()
	redistest.Must(t, err)
	n, err := strconv.Atoi(text["Persistence"]["rdb_changes_since_last_save"])
	redistest.Must(t, err)
	return n
}

func TestInvalidEventsAreRefused(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.OutboxBytes = 100 })
	now := time.Now()
	for want, event := range map[string]luatx.Event{
		"no body":       {},
		`with '='`:      {Body: []byte("=x")},
		`with '!'`:      {Body: []byte("!x")},
		"Key or At":     {Body: []byte("x"), Key: "k", At: now},
		"256 bytes":     {Body: []byte("x"), Key: strings.Repeat("k", 257)},
		"UTF-8":         {Body: []byte("x"), Key: "\xff"},
		"1970 to 9999":  {Body: []byte("x"), At: time.UnixMilli(-1)},
		"years 1970":    {Body: []byte("x"), At: now.AddDate(9000, 0, 0)},
		"OutboxBytes, ": {Body: make([]byte, 101)},
	} {
		if err := emitAll(t, tr, "a", event); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		event.ID = "id"
		if _, err := tr.Enqueue(redistest.Soon(t), "a", event); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("enqueued: %v, want %s", err, want)
		}
	}
	if _, err := tr.Enqueue(redistest.Soon(t), "a", luatx.Event{Body: []byte("x")}); err == nil || !strings.Contains(err.Error(), "no id") {
		t.Errorf("enqueued without an id: %v", err)
	}
}

// due are the ids that a claim takes, and what it says of when the next is due.
func due(t testing.TB, tr *luatx.Transactor) (ids []string, next time.Duration) {
	t.Helper()
	claim, err := link.Of(tr).Scripts.Claim(redistest.Soon(t), shardOf(tr), shard.Claiming{Limit: 100, Lease: time.Hour, Attempts: 10})
	redistest.Must(t, err)
	for _, e := range claim.Events {
		ids = append(ids, e.ID)
	}
	return ids, claim.Next
}

// without drops a key of the shard from a state.
func without(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, name string) redistest.State {
	t.Helper()
	state := rig.Dump(t, client, tr)
	delete(state.Keys, shardOf(tr).Key(name))
	return state
}

func TestFailedTransactionTakesBackItsOrderedAndScheduledEventsOnly(t *testing.T) {
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
				for _, event := range events(name) {
					if err := tx.Emit(event); err != nil {
						return err
					}
				}
				tx.Pipeline().Set(t.Context(), text, name, 0)
				return luatx.Queued(tx.Pipeline().Do(t.Context(), command, text, "x"))
			}}
		}
		results := tr.TransactBatch(redistest.Soon(t), []luatx.BatchItem{item("a", "APPEND"), item("bad", "LPUSH"), item("c", "APPEND")})
		var failed *luatx.CommandError
		if results[0].Err != nil || !errors.As(results[1].Err, &failed) || results[2].Err != nil {
			t.Fatal(results)
		}
		before := without(t, client, tr, "seq")
		if got := fmt.Sprint(before); strings.Contains(got, "bad") {
			t.Errorf("what failed is there: %s", got)
		}
		again := tr.TransactBatch(redistest.Soon(t), []luatx.BatchItem{item("bad", "LPUSH")})
		if again[0].Err == nil {
			t.Error("no failure")
		}
		if diff := redistest.Diff(before, without(t, client, tr, "seq")); diff != "" {
			t.Errorf("left a trace: %s", diff)
		}
		if n, all := gauge(t, client, tr, "events"), gauge(t, client, tr, "enqueued"); n != 8 || all != 8 {
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
		delays := []time.Duration{0, 10 * 24 * time.Hour, 0, time.Hour, 10 * 24 * time.Hour}
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
				tx.Events = append(tx.Events, shard.Event{ID: id, Body: []byte("{}")})
			}
			return tx
		}
		sent := func(batch ...commit.Commit) (woken []bool) {
			t.Helper()
			outcomes, _, err := rig.Commit(redistest.Soon(t), tr, shardOf(tr), batch)
			redistest.Must(t, err)
			for _, out := range outcomes {
				if out.State != commit.Committed {
					t.Errorf("%+v", out)
				}
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
			if fmt.Sprint(c.got) != c.want {
				t.Errorf("%v, want %s", c.got, c.want)
			}
		}
		settle(t, tr, "a", "sent")
		if got := sent(emitting("6", "a")); got[0] {
			t.Error("a known event wakes nobody")
		}
		if got := sent(emitting("7"), emitting("8", "d"), emitting("9", "e")); fmt.Sprint(got) != "[false true false]" {
			t.Errorf("in a batch: %v", got)
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
			_, err := tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error { tx.Call(name, nil, args...); return nil })
			return err
		}
		for _, err := range []error{call("lane", "a"), call("later")} {
			redistest.Must(t, err)
		}
		redistest.Must(t, emitAll(t, tr, "a", luatx.Event{ID: "b1", Key: "a%\x00b", Body: []byte("{}")}))
		before := without(t, client, tr, "seq")
		for name, want := range map[string]string{"both": "not both", "text": "no table", "time": "no time", "empty": "1 to 256"} {
			if err := call(name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
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

func TestDamagedTotalsCountAsZeroAndStayWellFormed(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for damaged, want := range map[string][2]string{ // after the enqueue of one event, and after it was sent
			"":             {"1 2 1 0 0", "0 0 1 0 0"},
			"many":         {"1 2 1 0 0", "0 0 1 0 0"},
			"1 2 3 4":      {"1 2 1 0 0", "0 0 1 0 0"},
			"-1 2 3 0 0":   {"1 2 1 0 0", "0 0 1 0 0"},
			"5 20 30 4 50": {"6 22 31 4 50", "5 20 31 4 50"},
		} {
			ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
			key := shardOf(tr).Key("counts")
			redistest.Must(t, client.HSet(ctx, key, "totals", damaged).Err())
			redistest.Must(t, emitAll(t, tr, "a", luatx.Event{ID: "e", Body: []byte("{}")}))
			if got := client.HGet(ctx, key, "totals").Val(); got != want[0] {
				t.Errorf("%q became %q by a commit, want %q", damaged, got, want[0])
			}
			settle(t, tr, "e", "sent")
			if got := client.HGet(ctx, key, "totals").Val(); got != want[1] {
				t.Errorf("%q became %q by a settlement, want %q", damaged, got, want[1])
			}
		}
	})
}

func TestGaugesDoNotFallBelowZero(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		key := shardOf(tr).Key("counts")
		redistest.Must(t, emitAll(t, tr, "a", luatx.Event{ID: "e", Body: []byte("{}")}))
		redistest.Must(t, client.HSet(ctx, key, "totals", "0 1 7 0 0").Err())
		settle(t, tr, "e", "sent")
		if got := client.HGet(ctx, key, "totals").Val(); got != "0 0 7 0 0" {
			t.Errorf("the totals are %q", got)
		}
	})
}
