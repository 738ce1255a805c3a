package luatx_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/redistest"
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
	took := time.Now()
	before := s.ackedOn("hot")
	redistest.Eventually(s.t, "commits", func() bool { return s.ackedOn("hot") > before })
	s.resumed = append(s.resumed, time.Since(took))
	must(s.group.Rejoin(ctx, master, successor))
	out.to = time.Now() // until then the old master may have been written to
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
	s := &sentinels{load: newLoad(t, newTransactor(t, client), "hot", "a", "b", "c"), group: group}
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
