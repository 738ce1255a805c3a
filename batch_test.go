package luatx_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/redistest"
	"github.com/luatx/luatx/internal/script"
	"github.com/luatx/luatx/internal/slot"
)

// luatxTx is one transaction without commands, as the script takes it.
func luatxTx(digest, token string, notAfter time.Time) []script.Tx {
	return []script.Tx{{Digest: digest, Token: token, NotAfter: notAfter}}
}

func set(k, v string) script.Command {
	return script.Command{Head: "k03", Args: []any{"SET", k, v}}
}

// testBatch commits a batch in which one transaction fails, one comes twice, one is too late and one is fenced;
// the others are none the worse.
func testBatch(t *testing.T, client redis.UniversalClient) {
	ctx, tr := redistest.Soon(t), newTransactor(t, client)
	k := func(part string) string { return key(t, tr, "a", part) }
	in := newInput(t, client, k("in"))
	owned := entryOf(t, in.deliver("c", order("1")))
	foreign := entryOf(t, in.deliver("other", order("2")))
	entry := func(ack script.Ack, id string) script.Input {
		return script.Input{Ack: ack, Stream: in.stream, Group: "g", Consumer: "c", Entry: id}
	}
	tx := func(n byte, change func(*script.Tx)) script.Tx {
		tx := script.Tx{
			Digest: string([]byte{n}) + "23456789abcdef0", Token: string([]byte{n}) + "base567\x00\x01",
			NotAfter: time.Now().Add(time.Minute),
			Commands: []script.Command{set(k(string(n)), "v")}, Keys: []string{k(string(n))},
		}
		change(&tx)
		return tx
	}
	plain := func(*script.Tx) {}
	twice := tx('a', plain)
	twice.Token = "Zbase567\x00\x01"
	batch := []script.Tx{
		tx('a', plain),
		tx('b', func(tx *script.Tx) { // fails in the middle
			tx.Commands = append(tx.Commands, script.Command{Head: "h04", Args: []any{"HSET", k("b"), "f", "v"}}, set(k("late"), "v"))
			tx.Keys = append(tx.Keys, k("late"))
		}),
		twice,
		tx('d', func(tx *script.Tx) { tx.NotAfter = time.Now().Add(-time.Hour) }),
		tx('e', func(tx *script.Tx) { tx.Input = entry(script.AckFused, foreign) }),
		tx('f', func(tx *script.Tx) { tx.Input = entry(script.AckFused, owned) }),
		tx('g', func(tx *script.Tx) { // a Lua error, not a command's
			tx.Commands = []script.Command{set(k("g"), "v"), {Head: "k00"}}
		}),
		tx('h', plain),
	}
	outcomes, _, _, err := tr.Scripts().Commit(ctx, tr.Scripts().Shard(slot.OfTag("a")), batch)
	if err != nil {
		t.Fatal(err)
	}
	want := []script.State{"committed", "failed", "duplicate", "expired", "fenced", "committed", "failed", "committed"}
	for i, out := range outcomes {
		if out.State != want[i] {
			t.Errorf("transaction %d: %+v, want %s", i, out, want[i])
		}
	}
	if !outcomes[5].Acked || in.pending() != 1 {
		t.Errorf("acknowledged %t, %d entries pending", outcomes[5].Acked, in.pending())
	}
	for name, exists := range map[string]int64{"a": 1, "b": 0, "d": 0, "e": 0, "f": 1, "g": 0, "h": 1, "late": 0} {
		if client.Exists(ctx, k(name)).Val() != exists {
			t.Errorf("key %s: want %d", name, exists)
		}
	}
}

// TestBatchOfEntriesAmongOthers holds that the fence of a batch sees every entry of it, though its consumer has more
// pending between them, and nothing of what another one has.
func TestBatchOfEntriesAmongOthers(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), newTransactor(t, client)
		in := newInput(t, client, key(t, tr, "a", "in"))
		owners := []string{"c", "c", "other", "c", "c", "c", "c"}
		entries := make([]string, len(owners))
		for i, owner := range owners {
			entries[i] = entryOf(t, in.deliver(owner, order(strconv.Itoa(i))))
		}
		for _, chosen := range [][]int{{6, 0, 2}, {1, 2, 3}} { // looked at one by one; together with another's
			var batch []script.Tx
			for _, i := range chosen {
				batch = append(batch, script.Tx{
					Digest: strconv.Itoa(i) + "23456789abcdef0", Token: strconv.Itoa(i) + "base567\x00\x01", NotAfter: time.Now().Add(time.Minute),
					Input: script.Input{Ack: script.AckFused, Stream: in.stream, Group: "g", Consumer: "c", Entry: entries[i]},
				})
			}
			outcomes, _, _, err := tr.Scripts().Commit(ctx, tr.Scripts().Shard(slot.OfTag("a")), batch)
			if err != nil {
				t.Fatal(err)
			}
			for i, out := range outcomes {
				want := script.Committed
				if owners[chosen[i]] != "c" {
					want = script.Fenced
				}
				if out.State != want || out.Acked != (want == script.Committed) {
					t.Errorf("transaction %d of %v: %+v, want %s", i, chosen, out, want)
				}
			}
		}
		if in.pending() != 3 {
			t.Errorf("%d entries are pending, want 3", in.pending())
		}
	})
}

// TestCountsThatCannotBeRead holds that a batch outlives counts of another type: what brings events fails before its
// mark, what brings none commits and hears so.
func TestCountsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), newTransactor(t, client)
		shard := tr.Scripts().Shard(slot.OfTag("a"))
		client.Set(ctx, shard.Key("counts"), "no hash", 0)
		tx := func(n byte, events ...script.Event) script.Tx {
			k := key(t, tr, "a", string(n))
			return script.Tx{
				Digest: string([]byte{n}) + "23456789abcdef0", Token: string([]byte{n}) + "base567\x00\x01",
				NotAfter: time.Now().Add(time.Minute), Events: events, Commands: []script.Command{set(k, "v")}, Keys: []string{k},
			}
		}
		outcomes, _, _, err := tr.Scripts().Commit(ctx, shard, []script.Tx{tx('a'), tx('b', script.Event{ID: "1", Body: []byte("x")}), tx('c')})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []script.State{script.Committed, script.Failed, script.Committed} {
			if outcomes[i].State != want {
				t.Errorf("transaction %d: %+v, want %s", i, outcomes[i], want)
			}
		}
		if n := client.Exists(ctx, key(t, tr, "a", "b"), shard.Key("entries")).Val(); n != 0 {
			t.Errorf("what failed left %d keys", n)
		}
	})
}
