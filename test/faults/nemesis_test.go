package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// run starts workers that make calls, each with its own ids and some with short deadlines, until stop is called.
func (l *load) run(ctx context.Context, workers int) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			ticker := time.NewTicker(20 * time.Millisecond)
			defer ticker.Stop()
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-ticker.C:
				}
				aggregate := l.aggregates[0] // a third of all calls go there
				if i%4 > 0 {
					aggregate = l.aggregates[rand.N(len(l.aggregates))]
				}
				limit, end := ctx, context.CancelFunc(func() {})
				if i%3 == 0 {
					limit, end = context.WithTimeout(ctx, rand.N(300*time.Millisecond))
				}
				l.call(limit, fmt.Sprintf("call-%d-%d", w, i), aggregate, fmt.Sprintf("%d-%d", w, i))
				end()
			}
		})
	}
	return func() { close(done); running.Wait() }
}

// outage is a failure that may lose commits acknowledged shortly before its end, because replication is asynchronous.
type outage struct {
	aggregates map[string]bool
	from, to   time.Time
}

// lag is how far a replica may lag behind its master on a busy machine.
const lag = 5 * time.Second

// survived compares the results that callers got with the data after the outages, and checks that work resumed soon.
func (l *load) survived(ctx context.Context, client redis.UniversalClient) outcomeCounts {
	l.t.Helper()
	for _, d := range l.resumed {
		if verifying() && d > 5*time.Second {
			l.t.Errorf("work resumed %v after the new master had taken over", d)
		}
	}
	return l.audit(ctx, client, func(c *call) bool {
		return slices.ContainsFunc(l.outages, func(o outage) bool {
			return o.aggregates[c.aggregate] && c.at.After(o.from.Add(-lag)) && c.at.Before(o.to)
		})
	})
}

// flushScripts flushes the scripts of all servers ten times a second, until the returned function is called.
func flushScripts(t testing.TB, addrs []string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var running sync.WaitGroup
	for _, addr := range addrs {
		client := redistest.Admin(t, addr, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 })
		running.Go(func() {
			ticker := time.NewTicker(100 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-done:
					return
				case <-ticker.C:
					client.ScriptFlush(context.Background()) // a stopped server has lost them
				}
			}
		})
	}
	return func() { close(done); running.Wait() }
}

// nemesis injects faults into a cluster under load.
type nemesis struct {
	*load
	cluster *redistest.Cluster3
}

// migrate moves the slot of an aggregate to another master.
func (n *nemesis) migrate(ctx context.Context, aggregate string) {
	n.t.Helper()
	from, err := n.cluster.NodeForSlot(ctx, slot.OfTag(aggregate))
	redistest.Must(n.t, err)
	masters, err := n.cluster.Masters(ctx)
	redistest.Must(n.t, err)
	to := masters[rand.N(len(masters))]
	for to == from {
		to = masters[rand.N(len(masters))]
	}
	redistest.Must(n.t, n.cluster.MigrateSlot(ctx, slot.OfTag(aggregate), to))
	n.moves(aggregate)
}

// moves waits until commits on an aggregate are acknowledged again.
func (n *nemesis) moves(aggregate string) {
	n.t.Helper()
	before := n.ackedOn(aggregate)
	redistest.Eventually(n.t, "commits on "+aggregate, func() bool { return n.ackedOn(aggregate) > before })
}

// kill kills the master of an aggregate, waits for a replica to take over, and restarts the old master as a replica.
func (n *nemesis) kill(ctx context.Context, aggregate string) {
	n.t.Helper()
	master, err := n.cluster.NodeForSlot(ctx, slot.OfTag(aggregate))
	redistest.Must(n.t, err)
	served := make(map[string]bool)
	for _, a := range n.aggregates {
		node, err := n.cluster.NodeForSlot(ctx, slot.OfTag(a))
		redistest.Must(n.t, err)
		served[a] = node == master
	}
	out := outage{aggregates: served, from: time.Now()}
	redistest.Must(n.t, master.Kill())
	redistest.Eventually(n.t, "a replica to take over", func() bool {
		now, err := n.cluster.NodeForSlot(ctx, slot.OfTag(aggregate))
		return err == nil && now != master
	})
	out.to = time.Now()
	n.outages = append(n.outages, out)
	n.moves(aggregate)
	n.resumed = append(n.resumed, time.Since(out.to))
	_, err = n.cluster.WaitMaster(ctx, slot.OfTag(aggregate), master)
	redistest.Must(n.t, err)
	redistest.Must(n.t, master.Restart(ctx))
	redistest.Must(n.t, n.cluster.WaitReady(ctx))
}

// TestGuaranteesHoldWhileAClusterFails runs while slots migrate, replicas take over, masters are killed and servers lose their
// scripts, all under load. An acknowledged commit is present once and complete, unless its master was killed. Every failed call
// succeeds when the same id is sent again. Work resumes within seconds after a new master takes over.
func TestGuaranteesHoldWhileAClusterFails(t *testing.T) {
	t.Parallel()
	migrations, failovers, kills := 2, 1, 1
	if verifying() {
		migrations, failovers, kills = 10, 5, 3
	}
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	aggregates := []string{"hot", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"}
	n := &nemesis{load: newLoad(t, rig.NewTransactor(t, client), aggregates...), cluster: cluster}
	unflush := flushScripts(t, cluster.Addrs())
	defer unflush()
	stop := sync.OnceFunc(n.run(ctx, 16))
	defer stop()

	for i := range max(migrations, failovers, kills) {
		if i < migrations {
			n.migrate(ctx, "hot")
		}
		if i < failovers {
			_, err := cluster.Failover(ctx, slot.OfTag(aggregates[i]))
			redistest.Must(n.t, err)
			n.moves(aggregates[i])
		}
		if i < kills {
			n.kill(ctx, aggregates[i])
		}
	}
	stop()
	result := n.survived(ctx, client)
	t.Logf("%d migrations, %d failovers, %d kills: %v; work resumed after %v", migrations, failovers, kills, result, n.resumed)
}

// sentinels injects faults into a master that sentinels watch, under load.
type sentinels struct {
	*load
	group *redistest.SentinelGroup
}

// failover makes the replica take over. The master is killed, or a sentinel demotes it, and then becomes the new replica.
// In both cases the last commits that the old master acknowledged are lost if its replica did not have them, because a
// sentinel does not stop the old master before it promotes the new one.
func (s *sentinels) failover(ctx context.Context, kill bool) {
	s.t.Helper()
	master, err := s.group.Master(ctx)
	redistest.Must(s.t, err)
	all := make(map[string]bool)
	for _, aggregate := range s.aggregates {
		all[aggregate] = true
	}
	out := outage{aggregates: all, from: time.Now()}
	if kill {
		redistest.Must(s.t, master.Kill())
	} else {
		redistest.Must(s.t, s.group.Failover(ctx))
	}
	successor, err := s.group.WaitMaster(ctx, master)
	redistest.Must(s.t, err)
	out.to = time.Now()
	before := s.ackedOn("hot")
	redistest.Eventually(s.t, "commits", func() bool { return s.ackedOn("hot") > before })
	s.resumed = append(s.resumed, time.Since(out.to))
	redistest.Must(s.t, s.group.Rejoin(ctx, master, successor))
	if !kill {
		out.to = time.Now() // until then the old master may accept writes
	}
	s.outages = append(s.outages, out)
}

// TestGuaranteesHoldWhileSentinelsFailOver checks that a call that failed is applied after the same id is sent again, that a
// commit is applied completely or not at all, and that only commits that the old master lost are gone.
func TestGuaranteesHoldWhileSentinelsFailOver(t *testing.T) {
	t.Parallel()
	failovers := []bool{true} // killed
	if verifying() {
		failovers = []bool{false, true, false, true, false, true}
	}
	group := redistest.Sentinel(t)
	client := group.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := &sentinels{load: newLoad(t, rig.NewTransactor(t, client), "hot", "a", "b", "c"), group: group}
	stop := sync.OnceFunc(s.run(ctx, 16))
	defer stop()
	for _, kill := range failovers {
		s.failover(ctx, kill)
	}
	stop()
	result := s.survived(ctx, client)
	t.Logf("%d failovers: %v; work resumed after %v", len(failovers), result, s.resumed)
}

func TestCommitLeavesAMasterThatHasBecomeAReplica(t *testing.T) {
	t.Parallel()
	master, replica := redistest.WithReplica(t)
	var current atomic.Pointer[redistest.Server]
	current.Store(master)
	client := redistest.Client(t, "redis.internal:6379", func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, current.Load().Addr())
		}
	})
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	l := newLoad(t, tr, "a")
	l.call(ctx, "before", "a", "1")
	redistest.Eventually(t, "the replica to have it", func() bool {
		return replica.Client(t).Exists(ctx, rig.Key(t, tr, "a", "effects")).Val() == 1
	})
	redistest.Must(t,
		replica.Admin(t).ReplicaOf(ctx, "no", "one").Err(),
		master.Admin(t).ReplicaOf(ctx, "127.0.0.1", strconv.Itoa(replica.Port())).Err(),
	)
	current.Store(replica)
	l.call(ctx, "after", "a", "2")
	if n := l.audit(ctx, client, func(*call) bool { return false }); n.committed != 2 {
		t.Errorf("%v", n)
	}
}
