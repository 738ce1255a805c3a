package nemesis

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/torture/internal/ground"
)

func clustered(n *Nemeses) bool { return n.Site.Cluster != nil }

// replicaLag is how long a replica is cut off from its master before the master is killed.
const replicaLag = 900 * time.Millisecond

var clusterKinds = []kind{
	{name: "kill-master", track: "servers", fits: clustered, inflict: onMaster(killMaster)},
	{name: "lag-then-kill", track: "servers", fits: clustered, inflict: onMaster(lagThenKill)},
	{name: "kill-replica", track: "servers", fits: clustered, inflict: onMaster(killReplica)},
	{name: "stop-master", track: "servers", fits: clustered, inflict: onMaster(stopMaster)},
	{name: "failover", track: "servers", fits: clustered, inflict: onMaster(failover)},
	{name: "migrate", track: "servers", fits: clustered, inflict: onMaster(migrate)},
}

// scene is the target of a fault: a branch, its master, and the other branches of that master.
type scene struct {
	*Nemeses
	injury
	rng    *rand.Rand
	branch ground.Branch
	master *redistest.Server
}

// onMaster returns a fault that chooses a branch and breaks its master or something related. The fault completes even if
// the run ends meanwhile.
func onMaster(inflict func(ctx context.Context, s *scene) error) func(context.Context, *Nemeses, *rand.Rand) (injury, error) {
	return func(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
		ctx = context.WithoutCancel(ctx)
		n.behind.Wait()
		s := &scene{Nemeses: n, rng: rng, branch: n.Branches[rng.IntN(len(n.Branches))]}
		err := n.Site.Cluster.WaitReady(ctx)
		if err != nil {
			return injury{}, err
		}
		if s.master, err = n.Site.Cluster.NodeForSlot(ctx, s.branch.Slot); err != nil {
			return injury{}, err
		}
		s.target = s.master.Addr()
		if s.branches, err = n.served(ctx, s.master); err != nil {
			return injury{}, err
		}
		err = inflict(ctx, s)
		return s.injury, err
	}
}

// served returns the branches of a master.
func (n *Nemeses) served(ctx context.Context, master *redistest.Server) ([]int, error) {
	var branches []int
	for _, b := range n.Branches {
		node, err := n.Site.Cluster.NodeForSlot(ctx, b.Slot)
		if err != nil {
			return nil, err
		}
		if node == master {
			branches = append(branches, b.N)
		}
	}
	return branches, nil
}

// killMaster kills a master and restarts it as a replica.
func killMaster(ctx context.Context, s *scene) error {
	return s.replaceMaster(ctx, s.master.Kill)
}

// lagThenKill kills a master whose replica lags behind.
func lagThenKill(ctx context.Context, s *scene) error {
	return s.replaceMaster(ctx, func() error {
		replica, err := s.Site.Cluster.ReplicaOf(ctx, s.master)
		if err != nil {
			return err
		}
		return errors.Join(s.sever(ctx, s.master, replica), s.master.Kill(), replica.Resume())
	})
}

// replaceMaster kills a master and waits until it has a successor.
func (s *scene) replaceMaster(ctx context.Context, kill func() error) error {
	out := Outage{Branches: s.branches, From: time.Now()}
	if err := kill(); err != nil {
		return err
	}
	_, err := s.Site.Cluster.WaitMaster(ctx, s.branch.Slot, s.master)
	out.To = time.Now()
	s.lost(out)
	s.behind.Go(func() { _ = insist(s.master.Restart) }) // the next fault waits for it, but commits do not
	return err
}

// sever cuts a replica off from its master for the lag. It pauses the replica and closes their connection, because the
// kernel would otherwise buffer what the master sends.
func (n *Nemeses) sever(ctx context.Context, master, replica *redistest.Server) error {
	if err := replica.Pause(); err != nil {
		return err
	}
	err := n.admins([]string{master.Addr()}, func(c *redis.Client) error {
		return c.Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err()
	})
	sleep.For(ctx, replicaLag)
	return err
}

func killReplica(ctx context.Context, s *scene) error {
	replica, err := s.Site.Cluster.ReplicaOf(ctx, s.master)
	if err != nil {
		return err
	}
	s.target = replica.Addr()
	err = replica.Kill()
	sleep.For(ctx, between(s.rng, 0, 500*time.Millisecond))
	return errors.Join(err, insist(replica.Restart))
}

// stopMaster pauses a master for longer than the other nodes wait for it. Usually its replica takes over, and commits that
// the master acknowledges when it resumes are lost.
func stopMaster(ctx context.Context, s *scene) error {
	out := Outage{Branches: s.branches, From: time.Now()}
	if err := s.master.Pause(); err != nil {
		return err
	}
	sleep.For(ctx, between(s.rng, stopped, 5*time.Second))
	if err := errors.Join(s.master.Resume(), s.Site.Cluster.WaitReady(ctx)); err != nil {
		return err
	}
	now, err := s.Site.Cluster.NodeForSlot(ctx, s.branch.Slot)
	if err == nil && now != s.master {
		out.To = time.Now()
		s.lost(out)
		s.target += ", replaced by its replica"
	}
	return err
}

// failover makes a replica take over in agreement with its master, so that nothing may be lost.
func failover(ctx context.Context, s *scene) error {
	_, err := s.Site.Cluster.Failover(ctx, s.branch.Slot)
	return err
}

// migrate moves the hot branch, or another one, to another master and back.
func migrate(ctx context.Context, s *scene) (err error) {
	b, home := s.branch, s.master
	if s.rng.IntN(2) == 0 {
		b = s.Branches[0]
		if home, err = s.Site.Cluster.NodeForSlot(ctx, b.Slot); err != nil {
			return err
		}
	}
	s.injury = injury{target: b.Name, branches: []int{b.N}}
	masters, err := s.Site.Cluster.Masters(ctx)
	if err != nil {
		return err
	}
	to := masters[s.rng.IntN(len(masters))]
	for to == home {
		to = masters[s.rng.IntN(len(masters))]
	}
	if err := s.Site.Cluster.MigrateSlot(ctx, b.Slot, to); err != nil {
		return err
	}
	sleep.For(ctx, between(s.rng, 50*time.Millisecond, 500*time.Millisecond))
	return s.Site.Cluster.MigrateSlot(ctx, b.Slot, home)
}
