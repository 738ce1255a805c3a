package commit_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
)

// luatxTx returns one transaction without commands in the form that the script takes.
func luatxTx(digest, token string, notAfter time.Time) []commit.Commit {
	return []commit.Commit{{Digest: digest, Token: token, NotAfter: notAfter}}
}

// testBatch commits a batch in which one transaction fails, one is a duplicate, one is too late and one is fenced. The
// others are not affected.
func testBatch(t *testing.T, client redis.UniversalClient) {
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	k := func(part string) string { return rig.Key(t, tr, "a", part) }
	in := rig.NewInput(t, client, k("in"))
	owned := rig.EntryOf(t, in.Deliver("c", rig.Order("1")))
	foreign := rig.EntryOf(t, in.Deliver("c", rig.Order("2")))
	in.TakeOver("other", foreign)
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
		tx('g', func(tx *commit.Commit) { // a Lua error that no command raises
			tx.Commands = []commit.Command{rig.Set(k("g"), "v"), {Head: "k00"}}
		}),
		tx('h', plain),
	}
	outcomes, _, err := rig.Commit(ctx, tr, link.Of(tr).Scripts.Shard(slot.OfTag("a")), batch)
	redistest.Must(t, err)
	want := []commit.State{"committed", "failed", "duplicate", "expired", "fenced", "committed", "failed", "committed"}
	for i, out := range outcomes {
		assert.Equal(t, out.State, want[i], "transaction %d: %+v", i, out)
	}
	if !outcomes[5].Acked || in.Pending() != 1 {
		t.Errorf("acknowledged %t, %d entries pending", outcomes[5].Acked, in.Pending())
	}
	for name, exists := range map[string]int64{"a": 1, "b": 0, "d": 0, "e": 0, "f": 1, "g": 0, "h": 1, "late": 0} {
		assert.Equal(t, client.Exists(ctx, k(name)).Val(), exists, "key %s", name)
	}
}

func TestFenceOfABatchSeesEachOfItsEntriesAndNoneOfAnotherConsumer(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		owners := []string{"c", "c", "other", "c", "c", "c", "c"}
		entries := make([]string, len(owners))
		for i, owner := range owners {
			entries[i] = rig.EntryOf(t, in.Deliver("c", rig.Order(strconv.Itoa(i))))
			if owner != "c" {
				in.TakeOver(owner, entries[i])
			}
		}
		for _, chosen := range [][]int{{6, 0, 2}, {1, 2, 3}} { // checked one by one; together with another's
			var batch []commit.Commit
			for _, i := range chosen {
				batch = append(batch, commit.Commit{
					Digest: strconv.Itoa(i) + "23456789abcdef0", Token: strconv.Itoa(i) + "base567\x00\x01", NotAfter: time.Now().Add(time.Minute),
					Input: commit.Input{Ack: commit.AckFused, Stream: in.Stream, Group: "g", Consumer: "c", Entry: entries[i]},
				})
			}
			outcomes, _, err := rig.Commit(ctx, tr, link.Of(tr).Scripts.Shard(slot.OfTag("a")), batch)
			redistest.Must(t, err)
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
		assert.Equal(t, in.Pending(), 3, "pending entries")
	})
}

func TestCountsOfAnotherTypeFailOnlyTransactionsWithEvents(t *testing.T) {
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
		redistest.Must(t, err)
		for i, want := range []commit.State{commit.Committed, commit.Failed, commit.Committed} {
			assert.Equal(t, outcomes[i].State, want, "transaction %d: %+v", i, outcomes[i])
		}
		assert.Equal(t, outcomes[1].Index, 0, "the failed command")
		assert.Equal(t, client.Exists(ctx, rig.Key(t, tr, "a", "b"), home.Key("entries")).Val(), 0, "keys that the failed batch left")
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

func TestPlanCountsThatTakeTwoBytesAreRead(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		const many = 300
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		n, list, missing := rig.Key(t, tr, "a", "n"), rig.Key(t, tr, "a", "list"), rig.Key(t, tr, "a", "missing")
		tx := func(name string) commit.Commit {
			return commit.Commit{
				Digest: fmt.Sprintf("%-16s", name), Token: fmt.Sprintf("%-10s", name), NotAfter: time.Now().Add(time.Minute),
				Keys: []string{n, list, missing},
			}
		}
		unset := commit.Guard{Order: 'o', Args: []any{"GET", missing}}
		reads, err := link.Of(tr).Commits.Read(ctx, shardOf(tr), []string{missing}, []commit.Guard{unset}, 1<<20)
		redistest.Must(t, err)
		unset.Digest = reads[0].Digest
		large, changed, wide, last := tx("large"), tx("changed"), tx("wide"), tx("last")
		for i := range many {
			large.Guards = append(large.Guards, unset)
			large.Events = append(large.Events, shard.Event{ID: fmt.Sprint(i), Body: []byte("{}")})
			large.Commands = append(large.Commands, commit.Command{Head: "i02", Args: []any{"INCR", n}})
		}
		changed.Guards = append(changed.Guards, large.Guards...)
		changed.Guards[many-1].Args = []any{"GET", n}
		values := make([]any, 4000)
		for i := range values {
			values[i] = i
		}
		wide.Commands = []commit.Command{{Head: "r0", Args: append([]any{"RPUSH", list}, values...)}, rig.Set(n+"x", "v")}
		wide.Keys = append(wide.Keys, n+"x")
		last.Commands = []commit.Command{{Head: "r03", Args: []any{"RPUSH", list, "last"}}}
		outcomes, _, err := rig.Commit(ctx, tr, shardOf(tr), []commit.Commit{large, changed, wide, last})
		redistest.Must(t, err)
		for i, want := range []commit.State{commit.Committed, commit.Conflict, commit.Committed, commit.Committed} {
			assert.Equal(t, outcomes[i].State, want, "transaction %d", i)
		}
		if replies := outcomes[0].Replies; len(replies) != many || replies[many-1] != int64(many) {
			t.Errorf("the replies: %.200v", replies)
		}
		assert.Equal(t, client.Get(ctx, n).Val(), fmt.Sprint(many), "commands that ran")
		assert.Equal(t, client.HLen(ctx, shardOf(tr).Key("entries")).Val(), many, "events")
		if got := client.LLen(ctx, list).Val(); got != int64(len(values))+1 || client.LIndex(ctx, list, -1).Val() != "last" {
			t.Errorf("%d values were pushed", got)
		}
	})
}

// start is when the clocks of the tests begin.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// atClock returns a server with its own clock, and a Transactor on it.
func atClock(t testing.TB, now time.Time) (*miniredis.Miniredis, *luatx.Transactor) {
	t.Helper()
	server, client := redistest.Mini(t)
	server.SetTime(now)
	return server, rig.NewTransactor(t, client)
}

func TestCommitIsInTimeUntilItsDeadlineHasPassed(t *testing.T) {
	t.Parallel()
	_, tr := atClock(t, start)
	for digest, c := range map[string]struct {
		deadline time.Time
		want     commit.State
	}{
		"at the deadline ": {start, commit.Committed}, "behind deadline ": {start.Add(-time.Millisecond), commit.Expired},
	} {
		outcomes, _, err := rig.Commit(redistest.Soon(t), tr, shardOf(tr), luatxTx(digest, "base5678\x00\x01", c.deadline))
		redistest.Must(t, err)
		assert.Equal(t, outcomes[0].State, c.want, "%s", digest)
	}
}

func TestIDIsADuplicateUntilTheSecondRotationByTheServersClock(t *testing.T) {
	t.Parallel()
	ctx := redistest.Soon(t)
	server, tr := atClock(t, start)
	commit := func(id string) luatx.Outcome {
		t.Helper()
		result, err := tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID(id))
		redistest.Must(t, err)
		return result.Outcome
	}
	for _, step := range []struct {
		at   time.Duration
		id   string
		want luatx.Outcome
	}{
		{0, "first", luatx.Committed},
		{23 * time.Hour, "first", luatx.Duplicate},
		{23 * time.Hour, "late", luatx.Committed},
		{25 * time.Hour, "second", luatx.Committed}, // rotates the generations
		{25 * time.Hour, "first", luatx.Duplicate},  // older than the retention, still in the older generation
		{47 * time.Hour, "late", luatx.Duplicate},   // remembered for at least the retention
		{50 * time.Hour, "second", luatx.Duplicate}, // rotates again, which drops first and late
		{50 * time.Hour, "late", luatx.Committed},
		{50 * time.Hour, "second", luatx.Duplicate},
		{40 * time.Hour, "second", luatx.Duplicate}, // a failover to a slower clock
		{40 * time.Hour, "third", luatx.Committed},
		{40 * time.Hour, "second", luatx.Duplicate}, // the older generation is still known
		{73 * time.Hour, "third", luatx.Duplicate},
		{75 * time.Hour, "fourth", luatx.Committed}, // rotates
		{98 * time.Hour, "third", luatx.Duplicate},
		{99 * time.Hour, "third", luatx.Committed},  // remembered for at most twice the retention and the difference of the clocks
		{200 * time.Hour, "third", luatx.Duplicate}, // a long time without commits does not drop the newer generation
		{200 * time.Hour, "late", luatx.Committed},
		{225 * time.Hour, "third", luatx.Committed},
	} {
		server.SetTime(start.Add(step.at))
		assert.Equal(t, commit(step.id), step.want, "after %v %s", step.at, step.id)
	}
}

// TestIDIsKeptForAShorterRetentionThanBefore checks that an id is kept for the retention of a Transactor whose predecessor had a
// longer one, and that it is forgotten afterwards. The stored start is moved instead of the server's clock.
func TestIDIsKeptForAShorterRetentionThanBefore(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		long := rig.NewTransactor(t, client)
		settings := long.Config()
		settings.Retention = time.Hour
		short, err := luatx.New(client, settings)
		redistest.Must(t, err)
		ctx, home := redistest.Soon(t), link.Of(long).Scripts.Shard(slot.OfTag("a"))
		want := func(tr *luatx.Transactor, id string, want luatx.Outcome) {
			t.Helper()
			result, err := tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID(id))
			redistest.Must(t, err)
			assert.Equal(t, result.Outcome, want, "%s", id)
		}
		began := func(age time.Duration, by *luatx.Transactor) {
			t.Helper()
			start := time.Now().Add(-age)
			meta := client.HGet(ctx, home.Key("inbox:a"), "id").Val()
			moved := msOf(start.Add(by.Config().Retention)) + msOf(start) + meta[26:]
			redistest.Must(t, client.HSet(ctx, home.Key("inbox:a"), "id", moved).Err())
		}
		want(long, "new", luatx.Committed)
		began(20*time.Hour, long)
		want(short, "other", luatx.Committed)
		want(short, "new", luatx.Duplicate)
		began(24*time.Hour, long)
		want(short, "newer", luatx.Committed)
		want(long, "new", luatx.Duplicate)
		began(time.Hour, short)
		want(short, "newer", luatx.Duplicate)
		want(short, "new", luatx.Committed)
	})
}

// TestTombstoneDoesNotMoveTheStartOfTheGeneration checks that a tombstone keeps the start. A later start would postpone the
// rotation and keep the ids longer.
func TestTombstoneDoesNotMoveTheStartOfTheGeneration(t *testing.T) {
	t.Parallel()
	ctx := redistest.Soon(t)
	server, tr := atClock(t, start)
	home := link.Of(tr).Scripts.Shard(slot.OfTag("a"))
	redistest.Must(t, assert.ErrOf(tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID("x"))))
	began := server.HGet(home.Key("inbox:a"), "id")[13:26]
	server.SetTime(start.Add(time.Hour))
	state, _, _, err := link.Of(tr).Commits.Resolve(ctx, home, "0123456789abcdef", nil, "base5678\x00\x01", start.Add(2*time.Hour))
	redistest.Must(t, err)
	assert.Equal(t, string(state), "tombstoned", "state")
	assert.Equal(t, server.HGet(home.Key("inbox:a"), "id")[13:26], began, "start of the generation")
}

func TestTombstoneIsFoundInEitherGenerationAndALaterOneDoesNotEndIt(t *testing.T) {
	t.Parallel()
	ctx := redistest.Soon(t)
	server, tr := atClock(t, start)
	home := link.Of(tr).Scripts.Shard(slot.OfTag("a"))
	redistest.Must(t, assert.ErrOf(tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID("x"))))
	server.SetTime(start.Add(24*time.Hour - time.Minute))
	until := start.Add(24*time.Hour + 4*time.Minute)
	digest, token := "0123456789abcdef", "base5678\x00\x01"
	for _, resolved := range []struct {
		token string
		until time.Time
	}{{token, until}, {"other678\x00\x01", start.Add(24*time.Hour - 30*time.Second)}} {
		if state, _, _, err := link.Of(tr).Commits.Resolve(ctx, home, digest, nil, resolved.token, resolved.until); err != nil || state != "tombstoned" {
			t.Fatal(state, err)
		}
	}
	late := luatxTx(digest, token, until)
	for _, at := range []time.Duration{24*time.Hour - time.Minute, 24*time.Hour + time.Minute, 24*time.Hour + 2*time.Minute} {
		server.SetTime(start.Add(at)) // the second commit rotates the generations
		outcomes, _, err := rig.Commit(ctx, tr, home, late)
		if err != nil || outcomes[0].State != "expired" {
			t.Errorf("after %v the tombstoned token: %v, %v", at, outcomes, err)
		}
	}
	outcomes, _, err := rig.Commit(ctx, tr, home, luatxTx(digest, "base5678\x00\x02", until))
	if err != nil || outcomes[0].State != "committed" {
		t.Errorf("the next token of the same delivery: %v, %v", outcomes, err)
	}
}

func TestTransactionsOfOneScriptDoNotAffectEachOther(t *testing.T) {
	t.Parallel()
	redistest.Every(t, testBatch)
}

func TestLateRetryOfACommittedTokenIsReplayed(t *testing.T) {
	t.Parallel()
	ctx := redistest.Soon(t)
	server, tr := atClock(t, start)
	shard := link.Of(tr).Scripts.Shard(slot.OfTag("a"))
	batch := luatxTx("0123456789abcdef", "base5678\x00\x01", start.Add(time.Minute))
	for _, want := range []string{"committed", "replayed"} {
		outcomes, _, err := rig.Commit(ctx, tr, shard, batch)
		if err != nil || string(outcomes[0].State) != want {
			t.Fatalf("%v, %v; want %s", outcomes, err, want)
		}
		server.SetTime(start.Add(2 * time.Minute))
	}
	if _, err := tr.Transact(ctx, "a", func(*luatx.Tx) error { return errors.New("not known") }, luatx.WithID("other")); err == nil {
		t.Error("an id that is not known is taken for a duplicate")
	}
}

func TestCommitThatArrivesAfterItsCallersDeadlineHasNoEffect(t *testing.T) {
	t.Parallel()
	server, past := redistest.Mini(t)
	server.SetTime(start)
	proxy := redistest.Proxy(t, server.Addr())
	tr := rig.NewTransactor(t, redistest.Admin(t, proxy.Addr(), rig.ShortReads)) // miniredis has no other user
	rig.Warm(t, tr)
	hold := proxy.Hold(respproxy.Command("EVALSHA"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // CommitTimeout is 30 seconds
	defer cancel()
	_, err := tr.Transact(ctx, "a", rig.Incr)
	assert.Is(t, err, luatx.ErrOutcomeUnknown, "without a reply")
	server.SetTime(start.Add(10 * time.Second))
	before := server.CommandCount()
	hold.Release()
	redistest.Eventually(t, "the commit to arrive", func() bool { return server.CommandCount() > before })
	assert.Equal(t, past.Exists(redistest.Soon(t), rig.Key(t, tr, "a", "n")).Val(), 0, "effects of the late commit")
}

// TestEveryTransactionOfALargeCompiledBatchIsComplete commits more transactions with a tail than Lua can pass to one command.
func TestEveryTransactionOfALargeCompiledBatchIsComplete(t *testing.T) {
	t.Parallel()
	const transactions, events = 450, 10
	redistest.Servers(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		commits, home, made := link.Of(tr).Commits, link.Of(tr).Scripts.Shard(slot.OfTag("a")), 0
		commits.CompileAfter(1)
		batch := func(n int) (all []*commit.Commit) {
			for range n {
				made++
				k := rig.Key(t, tr, "a", strconv.Itoa(made))
				c := &commit.Commit{
					Shard: home, Digest: fmt.Sprintf("%016d", made), Token: fmt.Sprintf("%010d", made),
					NotAfter: time.Now().Add(time.Minute), Commands: []commit.Command{rig.Set(k, "v")}, Keys: []string{k},
				}
				for e := range events {
					c.Events = append(c.Events, shard.Event{ID: fmt.Sprintf("%d/%d", made, e), Body: []byte("{}")})
				}
				all = append(all, c)
			}
			return all
		}
		commits.Send(ctx, time.Time{}, batch(1))
		commits.Wait() // the plan is compiled
		tail := redis.NewCmd(ctx, "exists", home.Void)
		tail.SetFirstKeyPos(1)
		all := batch(transactions)
		commits.Send(ctx, time.Time{}, all, tail)
		for i, c := range all {
			if c.Err != nil || c.Outcome.State != commit.Committed || c.Batch > 64 {
				t.Fatalf("transaction %d of a script of %d: %s, %v", i, c.Batch, c.Outcome.State, c.Err)
			}
		}
		assert.Equal(t, client.HLen(ctx, home.Key("entries")).Val(), int64(made*events), "events")
		redistest.Must(t, tail.Err())
	})
}
