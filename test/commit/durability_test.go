package commit_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

// durable returns a Transactor that waits for replicas or disks, and its log.
func durable(t *testing.T, client redis.UniversalClient, d luatx.Durability) (*luatx.Transactor, *rig.Lines) {
	t.Helper()
	log := &rig.Lines{}
	return rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Durability, c.Logger = d, slog.New(slog.NewTextHandler(log, nil))
	}), log
}

// note commits an event on an aggregate.
func note(ctx context.Context, tr *luatx.Transactor, aggregate string, opts ...luatx.Option) (luatx.Result, error) {
	return tr.Transact(ctx, aggregate, rig.Emit, opts...)
}

func TestResultReportsReplicationAndARepeatedCallWaitsAgain(t *testing.T) {
	t.Parallel()
	master, replica := redistest.WithReplica(t, redistest.Own())
	ctx := redistest.Soon(t)
	const timeout = 800 * time.Millisecond
	tr, log := durable(t, master.Client(t), luatx.Durability{Replicas: 1, Timeout: timeout})
	expect := func(what string, got luatx.Result, err error, outcome luatx.Outcome, replicated bool) {
		t.Helper()
		if err != nil || got.Outcome != outcome || got.Replicated != replicated {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	redistest.Eventually(t, "the replica to be online", func() bool {
		result, err := note(ctx, tr, "a")
		return err != nil || result.Replicated
	})
	result, err := note(ctx, tr, "a", luatx.WithID("1"))
	expect("with a replica", result, err, luatx.Committed, true)
	result, err = tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil })
	expect("nothing to commit", result, err, luatx.Committed, true)
	for _, got := range tr.TransactBatch(ctx, []luatx.BatchItem{
		{Aggregate: "a", Func: rig.Emit},
		{Aggregate: "a", Func: rig.Emit}, // in one script with the first
		{Aggregate: "b", Func: rig.Emit},
	}) {
		expect("a batch", got.Result, got.Err, luatx.Committed, true)
	}

	redistest.Must(t, replica.Pause())
	begun := time.Now()
	result, err = note(ctx, tr, "a", luatx.WithID("2"))
	expect("with a replica that stands still", result, err, luatx.Committed, false)
	if took := time.Since(begun); took < timeout || took > timeout+3*time.Second {
		t.Errorf("waited %v", took)
	}
	again, err := luatx.New(master.Client(t), tr.Config())
	redistest.Must(t, err)
	redistest.Must(t, again.Check(ctx))
	// WAIT covers the last write of its connection, so these cases begin with connections that have written nothing.
	onNewConnections := func() {
		t.Helper()
		redistest.Must(t, master.Admin(t).ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
	}
	onNewConnections()
	result, err = note(ctx, again, "a", luatx.WithID("2"))
	expect("asked again", result, err, luatx.Duplicate, false)
	onNewConnections()
	asked := luatx.BatchItem{
		Aggregate: "a", Func: rig.Emit, Options: []luatx.Option{luatx.WithID("2")},
	}
	for _, got := range again.TransactBatch(ctx, []luatx.BatchItem{asked, asked}) {
		expect("asked again in a batch of duplicates", got.Result, got.Err, luatx.Duplicate, false)
	}

	hurry, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result, err = note(hurry, tr, "a")
	expect("in a hurry", result, err, luatx.Committed, false)

	redistest.Must(t, replica.Resume())
	redistest.Eventually(t, "the replica to catch up", func() bool {
		result, err = note(ctx, tr, "a", luatx.WithID("2"))
		return err != nil || result.Replicated
	})
	expect("asked after it went on", result, err, luatx.Duplicate, true)
	if text := log.String(); strings.Contains(text, "replication wait refused") {
		t.Errorf("the log says %s", text)
	}
}

func TestHurriedCallersCommitWhileOthersWaitForReplicas(t *testing.T) {
	t.Parallel()
	master, replica := redistest.WithReplica(t, redistest.Own())
	ctx := redistest.Soon(t)
	const timeout, hurried = 8 * time.Second, 6 * time.Second // up to Redis 6.2 a server checks once a second whether a WAIT is over
	client := master.Client(t, func(o *redis.Options) { o.ReadTimeout = 2 * timeout })
	tr, _ := durable(t, client, luatx.Durability{Replicas: 1, Timeout: timeout})
	redistest.Must(t, replica.Pause())
	var patient, hasty sync.WaitGroup
	for i := range 8 {
		patient.Go(func() {
			if result, err := note(ctx, tr, "a"); err != nil || result.Outcome != luatx.Committed {
				t.Errorf("patient caller %d: %+v, %v", i, result, err)
			}
		})
	}
	redistest.Eventually(t, "four flights to wait for the replica", func() bool {
		return strings.Contains(client.Info(ctx, "clients").Val(), "blocked_clients:4")
	})
	hurry, cancel := context.WithTimeout(ctx, hurried)
	defer cancel()
	for i := range 3 {
		hasty.Go(func() {
			if result, err := note(hurry, tr, "a"); err != nil || result.Outcome != luatx.Committed || result.Replicated {
				t.Errorf("hurried caller %d: %+v, %v", i, result, err)
			}
		})
	}
	hasty.Wait()
	redistest.Must(t, replica.Resume())
	patient.Wait()
}

func TestMessageIsAcknowledgedThoughItsCommitReachedNoReplica(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, _ := durable(t, client, luatx.Durability{Replicas: 9, Timeout: 20 * time.Millisecond})
		n := rig.Key(t, tr, "a", "n")
		r := rig.NewCounter(t, tr, client, n)
		acked := false
		msg := message.New(nil, rig.Order("1"), message.NewAcking(func() { acked = true }, func(err error) { t.Error(err) }))
		if _, err := r.Process(redistest.Soon(t), msg); err != nil || !acked || client.Get(t.Context(), n).Val() != "1" {
			t.Errorf("acknowledged %t, %v", acked, err)
		}
	})
}

func TestCopyOfACommitThatWaitsForReplicasChangesNothing(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Durability, c.NoRegistration = luatx.Durability{Replicas: 1, Timeout: time.Millisecond}, true
	})
	before := ""
	for _, want := range []luatx.Outcome{luatx.Committed, luatx.Duplicate} {
		result, err := note(redistest.Soon(t), tr, "a", luatx.WithID("1"))
		redistest.Must(t, err)
		assert.Equal(t, result.Outcome, want, "the outcome")
		if after := server.Dump(); before != "" && after != before {
			t.Errorf("the server has\n%s\nwant\n%s", after, before)
		}
		before = server.Dump()
	}
}

// The first request commits and its reply is lost. The server has no replica, so no WAIT confirms the commit.
func TestCommitFoundAfterALostReplyIsNotReplicated(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]respproxy.Action{"found by a retry": respproxy.Pass(), "found by the lookup": respproxy.CutRequest()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, client, past := rig.Proxied(t)
			var last luatx.Commit
			tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
				if retries != respproxy.Pass() {
					c.CommitTimeout = 500 * time.Millisecond // the lookup follows it
				}
				c.Durability = luatx.Durability{Replicas: 1, Timeout: time.Millisecond}
				c.Observer.Committed = func(_ context.Context, commit luatx.Commit) { last = commit }
			})
			rig.Warm(t, tr)
			n := rig.Key(t, tr, "a", "n")
			isCommit := respproxy.Containing(rig.ScriptSHA(t, tr, "commit"))
			var lost atomic.Bool
			proxy.On(func(cmd []string) respproxy.Action {
				switch {
				case !isCommit(cmd):
					return respproxy.Pass()
				case lost.CompareAndSwap(false, true):
					return respproxy.CutReply()
				}
				return retries
			})
			r := rig.NewCounter(t, tr, client, n)
			msg := rig.Delivered("1")
			if _, err := r.Process(redistest.Soon(t), msg); err != nil || past.Get(t.Context(), n).Val() != "1" {
				t.Fatalf("%v, applied %s times", err, past.Get(t.Context(), n).Val())
			}
			want := luatx.Result{Outcome: luatx.Replayed}
			assert.Equal(t, last.Result, want, "the Observer's result")
			if retries != respproxy.Pass() {
				return // a call ends with its context, and sends no WAIT afterwards
			}
			lost.Store(false)
			if got, err := note(redistest.Soon(t), tr, "a"); err != nil || got != want {
				t.Errorf("the result is %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestCommitsContinueAndLogOnceIfTheServerRejectsWAIT(t *testing.T) {
	t.Parallel()
	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		client, _ := rig.NewUser(t, "+@all", "-wait")
		holdsDurability(t, client, luatx.Durability{Replicas: 1}, false)
	})
	t.Run("fsync", func(t *testing.T) {
		t.Parallel()
		client := redistest.Shared(t).Client(t)
		holdsDurability(t, client, luatx.Durability{Fsync: true}, client.Do(t.Context(), "waitaof", 1, 0, 1000).Err() == nil)
	})
}

// holdsDurability commits, and fails the test unless Result.Replicated is had.
func holdsDurability(t *testing.T, client redis.UniversalClient, d luatx.Durability, had bool) {
	t.Helper()
	tr, log := durable(t, client, d)
	for range 3 {
		if result, err := note(redistest.Soon(t), tr, "a"); err != nil || result.Outcome != luatx.Committed || result.Replicated != had {
			t.Errorf("%+v, %v", result, err)
		}
	}
	if got := strings.Count(log.String(), "replication wait refused"); had && got != 0 || !had && got != 1 {
		t.Errorf("%d warnings: %s", got, log)
	}
}

func TestOneWaitServesAllCommitsOfARoundTrip(t *testing.T) {
	t.Parallel()
	master, _ := redistest.WithReplica(t, redistest.Own())
	client := master.Client(t)
	tr, _ := durable(t, client, luatx.Durability{Replicas: 1})
	c := crowd{tr: tr, callers: 32, turns: 10, aggregates: 4}
	c.run(t, client)
	if n := rig.Calls(t, client, "wait"); n == 0 || n > 160 {
		t.Errorf("%d waits for 320 transactions", n)
	}
}

func TestWaitReachesTheNodeThatWroteAndFindsASlotThatHasMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	ctx := redistest.Soon(t)
	tr, _ := durable(t, client, luatx.Durability{Replicas: 1, Timeout: 2 * time.Second})
	var batch []luatx.BatchItem
	for i := range 30 {
		batch = append(batch, luatx.BatchItem{Aggregate: fmt.Sprint("a", i), Func: rig.Emit})
	}
	redistest.Eventually(t, "the replicas to be online", func() bool {
		for _, got := range tr.TransactBatch(ctx, batch) {
			if !got.Replicated {
				return false
			}
		}
		return true
	})
	_, target := rig.Masters(t, cluster, slot.OfTag("a0"))
	redistest.Must(t, cluster.MigrateSlot(ctx, slot.OfTag("a0"), target))
	for i, got := range tr.TransactBatch(ctx, batch) {
		if got.Err != nil || !got.Replicated {
			t.Errorf("item %d: %+v", i, got)
		}
	}

	master, err := cluster.NodeForSlot(ctx, slot.OfTag("a1"))
	redistest.Must(t, err)
	replica, err := cluster.ReplicaOf(ctx, master)
	redistest.Must(t, err)
	redistest.Must(t, replica.Pause())
	cfg := tr.Config()
	cfg.Durability.Timeout = 50 * time.Millisecond
	hasty, err := luatx.New(client, cfg)
	redistest.Must(t, err)
	for range 10 {
		if result, err := note(ctx, hasty, "a1"); err != nil || result.Replicated {
			t.Errorf("with a replica that stands still: %+v, %v", result, err)
		}
	}
	redistest.Must(t, replica.Resume())
}

func TestErrorOfDurabilityNamesTheFieldAndTheRemedy(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]luatx.Durability{
		"Durability.Replicas is -1; use 0, or more":             {Replicas: -1},
		"Timeout is 1s, and there is nothing to wait for":       {Timeout: time.Second},
		"Timeout is 1µs; use at least 1ms":                      {Replicas: 1, Timeout: time.Microsecond},
		"Timeout is -1s; use at least 1ms":                      {Fsync: true, Timeout: -time.Second},
		"Timeout is 1m0s, and the client gives up after its Re": {Replicas: 1, Timeout: time.Minute},
	} {
		for _, client := range []redis.UniversalClient{redis.NewClient(&redis.Options{}), redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})} {
			assert.ErrorContains(t, assert.ErrOf(luatx.New(client, luatx.Config{Namespace: "n", Durability: d})), want, "%+v", d)
			rig.NoError(t, client.Close())
		}
	}
}

func TestWaitForReplicasEndsBeforeTheClientGivesUp(t *testing.T) {
	t.Parallel()
	for reads, allowed := range map[time.Duration]bool{
		time.Second: false, time.Second + time.Millisecond: true, -1: true, // the client of -1 never gives up
	} {
		client := redis.NewClient(&redis.Options{ReadTimeout: reads})
		_, err := luatx.New(client, luatx.Config{Namespace: "n", Durability: luatx.Durability{Replicas: 1, Timeout: time.Second}})
		assert.Equal(t, err == nil, allowed, "a wait of 1s is allowed with a ReadTimeout of %v (%v)", reads, err)
		rig.NoError(t, client.Close())
	}
}
