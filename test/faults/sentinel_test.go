package faults_test

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
)

// sentinels breaks a master that sentinels watch, under load.
type sentinels struct {
	*load
	group   *redistest.SentinelGroup
	outages []outage
	resumed []time.Duration
}

// failover makes the replica take over from the master, which is killed or told by a sentinel to give way, and then
// follows as the new replica. In either case what the old master acknowledged to the last is lost where its replica did
// not have it yet: a sentinel does not stop the old master before it promotes the new one.
func (s *sentinels) failover(ctx context.Context, kill bool) {
	s.t.Helper()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	master, err := s.group.Master(ctx)
	must(err)
	all := make(map[string]bool)
	for _, aggregate := range s.aggregates {
		all[aggregate] = true
	}
	out := outage{aggregates: all, from: time.Now()}
	if kill {
		must(master.Kill())
	} else {
		must(s.group.Failover(ctx))
	}
	successor, err := s.group.WaitMaster(ctx, master)
	must(err)
	out.to = time.Now()
	before := s.ackedOn("hot")
	redistest.Eventually(s.t, "commits", func() bool { return s.ackedOn("hot") > before })
	s.resumed = append(s.resumed, time.Since(out.to))
	must(s.group.Rejoin(ctx, master, successor))
	if !kill {
		out.to = time.Now() // until then the old master may have been written to
	}
	s.outages = append(s.outages, out)
}

// TestSentinelFailover is the same behind sentinels: whoever was told an error is in after sending the same id again,
// a commit is there whole or not at all, and only what the old master took with it is gone.
func TestSentinelFailover(t *testing.T) {
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
	result := s.audit(ctx, client, excuse(s.outages))
	t.Logf("%d failovers: %v; work resumed after %v", len(failovers), result, s.resumed)
	for _, d := range s.resumed {
		if verifying() && d > 5*time.Second {
			t.Errorf("work resumed %v after the new master had taken over", d)
		}
	}
}

// TestDemotedMaster holds that a commit leaves a master that has become a replica, as behind a name that is moved: the
// connections to it still stand, and it answers.
func TestDemotedMaster(t *testing.T) {
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
	for _, err := range []error{
		replica.Admin(t).ReplicaOf(ctx, "no", "one").Err(),
		master.Admin(t).ReplicaOf(ctx, "127.0.0.1", strconv.Itoa(replica.Port())).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	current.Store(replica)
	l.call(ctx, "after", "a", "2")
	if n := l.audit(ctx, client, func(*call) bool { return false }); n.committed != 2 {
		t.Errorf("%v", n)
	}
}
