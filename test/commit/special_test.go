package commit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
)

// due are the ids that a claim takes, and what it says of when the next is due.
func due(t testing.TB, tr *luatx.Transactor) (ids []string, next time.Duration) {
	t.Helper()
	claim, err := link.Of(tr).Scripts.Claim(redistest.Soon(t), shardOf(tr), shard.Claiming{Limit: 100, Lease: time.Hour, Attempts: 10})
	if err != nil {
		t.Fatal(err)
	}
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

// TestOrderedEventsTakenBack holds that a transaction which fails takes its ordered and scheduled events back, those of
// its neighbours in the batch stay, and all are counted right.
func TestOrderedEventsTakenBack(t *testing.T) {
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

// TestDelaysWithinABatch holds that the events of each transaction of a script are due when it says, whatever its
// neighbours say.
func TestDelaysWithinABatch(t *testing.T) {
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
		if err != nil {
			t.Fatal(err)
		}
		for i, out := range outcomes {
			at := client.ZScore(t.Context(), shardOf(tr).Key("pending"), fmt.Sprint("e", i)).Val()
			if want := now.Add(delays[i]).UnixMilli(); out.State != commit.Committed || int64(at) != want {
				t.Errorf("event %d, delayed by %v: %+v, due at %.0f, want %d", i, delays[i], out, at, want)
			}
		}
	})
}

// TestWoken holds that the script which puts events into an empty shard says so, once, and none without new events does.
func TestWoken(t *testing.T) {
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
			if err != nil {
				t.Fatal(err)
			}
			for _, out := range outcomes {
				if out.State != commit.Committed {
					t.Errorf("%+v", out)
				}
				woken = append(woken, out.Woken)
			}
			return woken
		}
		settle := func(ids ...string) {
			t.Helper()
			for _, id := range ids {
				settled, err := link.Of(tr).Scripts.Settle(redistest.Soon(t), shardOf(tr), shard.Settling{Attempts: 9, Retention: time.Hour}, []shard.Settlement{{ID: id, What: "sent"}})
				if err != nil || settled.Done[0] != "sent" {
					t.Fatal(settled, err)
				}
			}
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
		settle("a")
		if got := sent(emitting("6", "a")); got[0] {
			t.Error("a known event wakes nobody")
		}
		if got := sent(emitting("7"), emitting("8", "d"), emitting("9", "e")); fmt.Sprint(got) != "[false true false]" {
			t.Errorf("in a batch: %v", got)
		}
	})
}

// TestProcedureEmitsInOrder holds that procedures order and schedule their events, and what they may not.
func TestProcedureEmitsInOrder(t *testing.T) {
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
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := emitAll(t, tr, "a", luatx.Event{ID: "b1", Key: "a%\x00b", Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
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
