package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// TestBarrierHoldsEventsUntilReplicasHaveTheirCommit checks that no event is published while a replica lacks its commit,
// neither inline nor cold; that no attempt counts meanwhile and one line is logged; and that all events are published when the
// replica is back.
func TestBarrierHoldsEventsUntilReplicasHaveTheirCommit(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]relay.Config{"inline": {}, "cold": {NoInline: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master, replica := redistest.WithReplica(t, redistest.Own())
			client := master.Client(t)
			tr, out := newTransactor(t, client), newSink()
			var log rig.Lines
			cfg.Barrier = relay.Barrier{Replicas: 1, Timeout: 50 * time.Millisecond}
			cfg.Attempts, cfg.Lease, cfg.PauseCap, cfg.SweepInterval, cfg.Logger = 2, time.Second, 20*time.Millisecond, 10*time.Millisecond, log.Logger()
			start(t, tr, out, cfg)
			commitBoth := func(n string) {
				emit(t, tr, "a", "plain"+n)
				commit(t, tr, "a", ordered("k", numbered("ordered"+n, 3)...)...)
			}
			commitBoth("A")
			redistest.Eventually(t, "the first to be published", func() bool { return counts(t, tr).Sent == 4 })

			redistest.Must(t, replica.Pause())
			began, ended := log.Count("too few replicas"), log.Count("enough replicas again") // a busy replica may have been slow before
			before := calls(t, master.Admin(t), "wait")
			commitBoth("B")
			redistest.Eventually(t, "many waits in vain", func() bool { return calls(t, master.Admin(t), "wait") > before+10 })
			if early := out.having("B"); len(early) > 0 {
				t.Errorf("%v were published, and no replica has them", early)
			}
			if n := log.Count("too few replicas") - began; n != 1 {
				t.Errorf("%d lines about it:\n%s", n, log.String())
			}
			redistest.Must(t, replica.Resume())
			redistest.Eventually(t, "the others to be published", func() bool { return counts(t, tr) == outbox.Counts{Sent: 8} })
			if n := log.Count("enough replicas again") - ended; n != 1 {
				t.Errorf("%d lines about the end:\n%s", n, log.String())
			}
		})
	}
}

// gate is a Publisher that starts to publish one event and continues when it is opened.
type gate struct {
	*sink
	id            string
	reached, open chan struct{}
}

func (g *gate) Publish(ctx context.Context, events []*message.RawMessage) []error {
	if slices.ContainsFunc(events, func(e *message.RawMessage) bool { return e.ID() == g.id }) {
		g.reached <- struct{}{}
		<-g.open
	}
	return g.sink.Publish(ctx, events)
}

// TestBarrierHoldsTheNextEventOfALane checks the event that a settlement leases next, for which no claim has waited.
func TestBarrierHoldsTheNextEventOfALane(t *testing.T) {
	t.Parallel()
	master, replica := redistest.WithReplica(t, redistest.Own())
	tr := newTransactor(t, master.Client(t))
	out := &gate{newSink(), "first", make(chan struct{}, 1), make(chan struct{})}
	start(t, tr, out, relay.Config{
		Barrier:  relay.Barrier{Replicas: 1, Timeout: 50 * time.Millisecond},
		PauseCap: 20 * time.Millisecond, SweepInterval: 10 * time.Millisecond,
	})
	commit(t, tr, "a", ordered("k", "first")...)
	<-out.reached
	redistest.Must(t, replica.Pause())
	commit(t, tr, "a", ordered("k", "second")...)
	before := calls(t, master.Admin(t), "wait")
	close(out.open)
	redistest.Eventually(t, "waits in vain", func() bool {
		return out.count("second") > 0 || calls(t, master.Admin(t), "wait") > before+5
	})
	if out.count("first") != 1 || out.count("second") != 0 {
		t.Errorf("published the first event %d times, and %d times the second one, which no replica has", out.count("first"), out.count("second"))
	}
	redistest.Must(t, replica.Resume())
	redistest.Eventually(t, "the second event to be published", func() bool { return out.count("second") == 1 })
}

// TestBarrierPublishesOnlyEventsThatTheRelayHolds checks that a relay that has waited for the replicas of a batch publishes no
// event of it that another process has settled meanwhile.
func TestBarrierPublishesOnlyEventsThatTheRelayHolds(t *testing.T) {
	t.Parallel()
	master, _ := redistest.WithReplica(t)
	tr := newTransactor(t, master.Client(t), func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) })
	out := &gate{newSink(), "first", make(chan struct{}, 1), make(chan struct{})}
	start(t, tr, out, relay.Config{Barrier: relay.Barrier{Replicas: 1}, Concurrency: 1})
	emit(t, tr, "a", "first")
	<-out.reached
	emit(t, tr, "a", "gone", "kept")
	scripts := link.Of(tr).Scripts
	_, err := scripts.Settle(redistest.Soon(t), scripts.Shard(tr.Keyspace().Slots()[0]), shard.Settling{Attempts: 1, Retention: time.Hour},
		[]shard.Settlement{{ID: "gone", What: settle.Sent}})
	redistest.Must(t, err)
	close(out.open)
	redistest.Eventually(t, "the event that the relay holds to be published", func() bool { return out.count("kept") == 1 })
	if out.count("gone") > 0 {
		t.Error("it also published the event that another process had settled")
	}
}

// extendBounds is a hook that keeps the most time that the script "extend" had left when it was sent.
type extendBounds struct {
	sha  string
	most atomic.Int64
}

func (*extendBounds) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*extendBounds) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b *extendBounds) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if args := cmds[0].Args(); len(args) > 1 && args[1] == b.sha {
			ends, _ := ctx.Deadline()
			b.most.Store(max(b.most.Load(), int64(time.Until(ends))))
		}
		return next(ctx, cmds)
	}
}

// TestBarrierWaitsForTwoThirdsOfTheLeaseAtMost checks that a server that does not respond leaves a third of the lease to
// publish an event that came inline.
func TestBarrierWaitsForTwoThirdsOfTheLeaseAtMost(t *testing.T) {
	t.Parallel()
	master, _ := redistest.WithReplica(t)
	client := master.Client(t)
	tr, out := newTransactor(t, client), newSink()
	var bounds extendBounds
	for name, sha := range link.Of(tr).Runner.SHAs() {
		if name == "extend" {
			bounds.sha = sha
		}
	}
	client.AddHook(&bounds)
	start(t, tr, out, relay.Config{Barrier: relay.Barrier{Replicas: 1}, Lease: 9 * time.Minute})
	emit(t, tr, "a", "e")
	redistest.Eventually(t, "the event to be published", func() bool { return out.count("e") == 1 })
	if most := time.Duration(bounds.most.Load()); most <= 0 || most > 6*time.Minute {
		t.Errorf("the wait for replicas had %v of a lease of 9m", most)
	}
}

// having returns the ids of the published events that contain the text.
func (s *sink) having(text string) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.order {
		if strings.Contains(id, text) {
			ids = append(ids, id)
		}
	}
	return ids
}

// TestBarrierLosesNoPublishedEventInAFailover checks that a failover loses no published event: the replica that takes over has
// all of them.
func TestBarrierLosesNoPublishedEventInAFailover(t *testing.T) {
	t.Parallel()
	master, replica := redistest.WithReplica(t, redistest.Own())
	tr, out := newTransactor(t, master.Client(t)), newSink()
	stop := start(t, tr, out, relay.Config{
		Barrier: relay.Barrier{Replicas: 1, Timeout: 50 * time.Millisecond}, Lease: time.Second,
		PauseCap: 20 * time.Millisecond, SweepInterval: 10 * time.Millisecond,
	})
	commit := func(from, to int) {
		for i := from; i < to; i++ {
			emit(t, tr, fmt.Sprint("a", i), fmt.Sprint("e", i))
		}
	}
	commit(0, 50)
	redistest.Eventually(t, "some to be published", func() bool { return out.count("e0") > 0 })
	after := replica.Admin(t)
	if err := after.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil { // later commits are lost
		t.Fatal(err)
	}
	before := calls(t, master.Admin(t), "wait")
	commit(50, 100)
	redistest.Eventually(t, "waits in vain", func() bool { return calls(t, master.Admin(t), "wait") > before+5 })
	stop()
	redistest.Must(t, master.Kill())
	lost := 0
	for i := range 100 {
		id := fmt.Sprint("e", i)
		known := has(t, after, tr, id)
		if !known {
			lost++
		}
		if out.count(id) > 0 && !known {
			t.Errorf("%s was published, and its commit is lost", id)
		}
	}
	if lost == 0 {
		t.Error("the failover lost nothing: there was nothing to see")
	}
	successor := elsewhere(t, replica.Client(t), tr)
	start(t, successor, out, relay.Config{SweepInterval: 10 * time.Millisecond})
	redistest.Eventually(t, "what is left to be published", func() bool {
		c := counts(t, successor)
		return c.Sent == int64(100-lost) && c.Pending == 0
	})
}

// has reports whether a server has an event, sent or not.
func has(t testing.TB, client *redis.Client, tr *luatx.Transactor, id string) bool {
	t.Helper()
	for _, n := range tr.Keyspace().Slots() {
		if client.HExists(t.Context(), link.Of(tr).Scripts.Shard(n).Key("entries"), id).Val() {
			return true
		}
	}
	return false
}

func TestBarrierWaitsForReplicasOfTheNodeOfItsShard(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	tr, out := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) }), newSink()
	start(t, tr, out, relay.Config{
		Barrier: relay.Barrier{Replicas: 1, Timeout: 50 * time.Millisecond}, Lease: time.Second,
		PauseCap: 20 * time.Millisecond, SweepInterval: 10 * time.Millisecond,
	})
	emit(t, tr, "a", "first")
	redistest.Eventually(t, "an event to be published", func() bool { return out.count("first") == 1 })
	ctx := redistest.Soon(t)
	master, err := cluster.NodeForSlot(ctx, tr.Keyspace().Slots()[0])
	redistest.Must(t, err)
	replica, err := cluster.ReplicaOf(ctx, master)
	redistest.Must(t, err)
	redistest.Must(t, replica.Pause())
	before := calls(t, master.Admin(t), "wait")
	emit(t, tr, "a", "second")
	redistest.Eventually(t, "waits in vain", func() bool { return calls(t, master.Admin(t), "wait") > before+5 })
	if out.count("second") > 0 {
		t.Error("it was published, and no replica has it")
	}
	redistest.Must(t, replica.Resume())
	redistest.Eventually(t, "the other to be published", func() bool { return out.count("second") == 1 })
}

// TestBarrierParksAnEventOfALaneOnce checks that the relay settles the next events of a lane under the leases that it has renewed.
func TestBarrierParksAnEventOfALaneOnce(t *testing.T) {
	t.Parallel()
	master, _ := redistest.WithReplica(t)
	tr, out := newTransactor(t, master.Client(t)), newSink()
	out.answer = func(id string, _ int) error {
		if id == "e1" {
			return message.Permanent(errNo)
		}
		return nil
	}
	start(t, tr, out, relay.Config{
		Barrier: relay.Barrier{Replicas: 1}, Attempts: 1, OnPark: relay.LaneContinues, SweepInterval: 10 * time.Millisecond,
	})
	commit(t, tr, "a", ordered("k", "e0", "e1", "e2")...)
	redistest.Eventually(t, "the lane to be settled", func() bool { return counts(t, tr) == outbox.Counts{Sent: 2, Parked: 1} })
	if got := out.having("e"); !slices.Equal(got, []string{"e0", "e1", "e2"}) {
		t.Errorf("published %v", got)
	}
}

// TestBarrierPublishesABatchOfSeveralShards checks it with one event that another process has settled meanwhile.
func TestBarrierPublishesABatchOfSeveralShards(t *testing.T) {
	t.Parallel()
	master, _ := redistest.WithReplica(t)
	tr := newTransactor(t, master.Client(t), func(c *luatx.Config) { c.Keyspace = luatx.Partitions(12) })
	out := &gate{newSink(), "first", make(chan struct{}, 1), make(chan struct{})}
	start(t, tr, out, relay.Config{Barrier: relay.Barrier{Replicas: 1}, Concurrency: 1})
	emit(t, tr, "a", "first")
	<-out.reached
	slots := tr.Keyspace().Slots()
	for i := range 12 { // each shard in turn
		emit(t, tr, aggregateIn(t, tr, slots[i%len(slots)]), fmt.Sprint("e", i))
	}
	scripts, gone := link.Of(tr).Scripts, 6
	_, err := scripts.Settle(redistest.Soon(t), scripts.Shard(slots[gone%len(slots)]), shard.Settling{Attempts: 1, Retention: time.Hour},
		[]shard.Settlement{{ID: fmt.Sprint("e", gone), What: settle.Sent}})
	redistest.Must(t, err)
	close(out.open)
	redistest.Eventually(t, "all events to be settled", func() bool { return counts(t, tr) == outbox.Counts{Sent: 13} })
	for i := range 12 {
		if n := out.count(fmt.Sprint("e", i)); (n == 0) != (i == gone) || n > 1 {
			t.Errorf("e%d was published %d times", i, n)
		}
	}
}

func TestBarrierRejectsAWaitThatOutlastsTheClient(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr, reads := newTransactor(t, client), client.Options().ReadTimeout
	for _, c := range []struct {
		barrier relay.Barrier
		fine    bool
	}{
		{relay.Barrier{Replicas: 1, Timeout: reads - time.Millisecond}, true},
		{relay.Barrier{Replicas: 1, Timeout: reads}, false},
		{relay.Barrier{Timeout: reads}, true},
	} {
		if _, err := relay.New(tr, newSink(), relay.Config{Barrier: c.barrier}); (err == nil) != c.fine || err != nil && !strings.Contains(err.Error(), "ReadTimeout") {
			t.Errorf("%+v with a ReadTimeout of %v: %v", c.barrier, reads, err)
		}
	}
}
