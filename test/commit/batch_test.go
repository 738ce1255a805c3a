package commit_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

// luatxTx is one transaction without commands, as the script takes it.
func luatxTx(digest, token string, notAfter time.Time) []commit.Commit {
	return []commit.Commit{{Digest: digest, Token: token, NotAfter: notAfter}}
}

// testBatch commits a batch in which one transaction fails, one comes twice, one is too late and one is fenced;
// the others are none the worse.
func testBatch(t *testing.T, client redis.UniversalClient) {
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	k := func(part string) string { return rig.Key(t, tr, "a", part) }
	in := rig.NewInput(t, client, k("in"))
	owned := rig.EntryOf(t, in.Deliver("c", rig.Order("1")))
	foreign := rig.EntryOf(t, in.Deliver("other", rig.Order("2")))
	entry := func(ack commit.Ack, id string) commit.Input {
		return commit.Input{Ack: ack, Stream: in.Stream, Group: "g", Consumer: "c", Entry: id}
	}
	tx := func(n byte, change func(*commit.Commit)) commit.Commit {
		tx := commit.Commit{
			Digest: string([]byte{n}) + "23456789abcdef0", Token: string([]byte{n}) + "base567\x00\x01",
			NotAfter: time.Now().Add(time.Minute),
			Commands: []commit.Command{rig.Set(k(string(n)), "v")}, Keys: []string{k(string(n))},
		}
		change(&tx)
		return tx
	}
	plain := func(*commit.Commit) {}
	twice := tx('a', plain)
	twice.Token = "Zbase567\x00\x01"
	batch := []commit.Commit{
		tx('a', plain),
		tx('b', func(tx *commit.Commit) { // fails in the middle
			tx.Commands = append(tx.Commands, commit.Command{Head: "h04", Args: []any{"HSET", k("b"), "f", "v"}}, rig.Set(k("late"), "v"))
			tx.Keys = append(tx.Keys, k("late"))
		}),
		twice,
		tx('d', func(tx *commit.Commit) { tx.NotAfter = time.Now().Add(-time.Hour) }),
		tx('e', func(tx *commit.Commit) { tx.Input = entry(commit.AckFused, foreign) }),
		tx('f', func(tx *commit.Commit) { tx.Input = entry(commit.AckFused, owned) }),
		tx('g', func(tx *commit.Commit) { // a Lua error, not a command's
			tx.Commands = []commit.Command{rig.Set(k("g"), "v"), {Head: "k00"}}
		}),
		tx('h', plain),
	}
	outcomes, _, err := rig.Commit(ctx, tr, link.Of(tr).Scripts.Shard(slot.OfTag("a")), batch)
	if err != nil {
		t.Fatal(err)
	}
	want := []commit.State{"committed", "failed", "duplicate", "expired", "fenced", "committed", "failed", "committed"}
	for i, out := range outcomes {
		if out.State != want[i] {
			t.Errorf("transaction %d: %+v, want %s", i, out, want[i])
		}
	}
	if !outcomes[5].Acked || in.Pending() != 1 {
		t.Errorf("acknowledged %t, %d entries pending", outcomes[5].Acked, in.Pending())
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
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		owners := []string{"c", "c", "other", "c", "c", "c", "c"}
		entries := make([]string, len(owners))
		for i, owner := range owners {
			entries[i] = rig.EntryOf(t, in.Deliver(owner, rig.Order(strconv.Itoa(i))))
		}
		for _, chosen := range [][]int{{6, 0, 2}, {1, 2, 3}} { // looked at one by one; together with another's
			var batch []commit.Commit
			for _, i := range chosen {
				batch = append(batch, commit.Commit{
					Digest: strconv.Itoa(i) + "23456789abcdef0", Token: strconv.Itoa(i) + "base567\x00\x01", NotAfter: time.Now().Add(time.Minute),
					Input: commit.Input{Ack: commit.AckFused, Stream: in.Stream, Group: "g", Consumer: "c", Entry: entries[i]},
				})
			}
			outcomes, _, err := rig.Commit(ctx, tr, link.Of(tr).Scripts.Shard(slot.OfTag("a")), batch)
			if err != nil {
				t.Fatal(err)
			}
			for i, out := range outcomes {
				want := commit.Committed
				if owners[chosen[i]] != "c" {
					want = commit.Fenced
				}
				if out.State != want || out.Acked != (want == commit.Committed) {
					t.Errorf("transaction %d of %v: %+v, want %s", i, chosen, out, want)
				}
			}
		}
		if in.Pending() != 3 {
			t.Errorf("%d entries are pending, want 3", in.Pending())
		}
	})
}

// TestCountsThatCannotBeRead sends a batch to a shard whose counts have another type. A transaction with events fails before
// its mark; one without events commits and reports it.
func TestCountsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		home := link.Of(tr).Scripts.Shard(slot.OfTag("a"))
		client.Set(ctx, home.Key("counts"), "no hash", 0)
		tx := func(n byte, events ...shard.Event) commit.Commit {
			k := rig.Key(t, tr, "a", string(n))
			return commit.Commit{
				Digest: string([]byte{n}) + "23456789abcdef0", Token: string([]byte{n}) + "base567\x00\x01",
				NotAfter: time.Now().Add(time.Minute), Events: events, Commands: []commit.Command{rig.Set(k, "v")}, Keys: []string{k},
			}
		}
		outcomes, _, err := rig.Commit(ctx, tr, home, []commit.Commit{tx('a'), tx('b', shard.Event{ID: "1", Body: []byte("x")}), tx('c')})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []commit.State{commit.Committed, commit.Failed, commit.Committed} {
			if outcomes[i].State != want {
				t.Errorf("transaction %d: %+v, want %s", i, outcomes[i], want)
			}
		}
		if n := client.Exists(ctx, rig.Key(t, tr, "a", "b"), home.Key("entries")).Val(); n != 0 {
			t.Errorf("the failed batch left %d keys", n)
		}
	})
}

func TestEntryWhoseAcknowledgementFailsIsNotReportedAsAcknowledged(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	stream := rig.Key(t, tr, "a", "in")
	entry := admin.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"f", "v"}}).Val()
	admin.XGroupCreate(ctx, stream, "g", "0")
	admin.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{stream, ">"}})
	batch := luatxTx("0123456789abcdef", "base5678\x00\x01", time.Now().Add(time.Minute))
	batch[0].Input = commit.Input{Ack: commit.AckFused, Stream: stream, Group: "g", Consumer: "c", Entry: entry}
	for _, step := range []struct {
		right string
		state commit.State
		acked bool
	}{{"-xack", commit.Committed, false}, {"-xack", commit.Replayed, false}, {"+xack", commit.Replayed, true}} {
		rig.Grant(t, admin, step.right)
		outcomes, _, err := rig.Commit(ctx, tr, link.Of(tr).Scripts.Shard(slot.OfTag("a")), batch)
		if err != nil || outcomes[0].State != step.state || outcomes[0].Acked != step.acked {
			t.Fatalf("with %s: %+v, %v, want %s and acknowledged %t", step.right, outcomes, err, step.state, step.acked)
		}
		if left := admin.XPending(ctx, stream, "g").Val(); (left.Count == 0) != step.acked {
			t.Errorf("with %s: %d entries are pending", step.right, left.Count)
		}
	}
}
