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

// replicaLag is for how long a replica hears nothing of its master before that one dies.
const replicaLag = 900 * time.Millisecond

var clusterKinds = []kind{
	{name: "kill-master", track: "servers", fits: clustered, inflict: killMaster(false)},
	{name: "lag-then-kill", track: "servers", fits: clustered, inflict: killMaster(true)},
	{name: "kill-replica", track: "servers", fits: clustered, inflict: killReplica},
	{name: "stop-master", track: "servers", fits: clustered, inflict: stopMaster},
	{name: "failover", track: "servers", fits: clustered, inflict: failover},
	{name: "migrate", track: "servers", fits: clustered, inflict: migrate},
}

// served are the branches of a master.
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

// target draws a branch, and finds its master and the branches beside it.
func (n *Nemeses) target(ctx context.Context, rng *rand.Rand) (b ground.Branch, master *redistest.Server, beside []int, err error) {
	n.behind.Wait()
	b = n.Branches[rng.IntN(len(n.Branches))]
	if err = n.Site.Cluster.WaitReady(ctx); err != nil {
		return b, nil, nil, err
	}
	if master, err = n.Site.Cluster.NodeForSlot(ctx, b.Slot); err != nil {
		return b, nil, nil, err
	}
	beside, err = n.served(ctx, master)
	return b, master, beside, err
}

// killMaster kills a master, whose replica may have heard nothing for a while, and lets it come back as a replica.
func killMaster(lagging bool) func(context.Context, *Nemeses, *rand.Rand) (injury, error) {
	return func(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
		ctx = context.WithoutCancel(ctx)
		b, master, beside, err := n.target(ctx, rng)
		if err != nil {
			return injury{}, err
		}
		done := injury{target: master.Addr(), branches: beside}
		out := Outage{Branches: beside, From: time.Now()}
		if lagging {
			replica, err := n.Site.Cluster.ReplicaOf(ctx, master)
			if err != nil {
				return done, err
			}
			if err := errors.Join(n.sever(ctx, master, replica), master.Kill(), replica.Resume()); err != nil {
				return done, err
			}
		} else if err := master.Kill(); err != nil {
			return done, err
		}
		_, err = n.Site.Cluster.WaitMaster(ctx, b.Slot, master)
		out.To = time.Now()
		n.lost(out)
		n.behind.Go(func() { _ = insist(master.Restart) }) // commits do not wait for it; the next fault does
		return done, err
	}
}

// sever lets a replica hear nothing of its master for the lag: it stands still, and the connection between them is closed,
// for else the kernel would keep for it what the master sends.
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

func killReplica(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	ctx = context.WithoutCancel(ctx)
	_, master, beside, err := n.target(ctx, rng)
	if err != nil {
		return injury{}, err
	}
	replica, err := n.Site.Cluster.ReplicaOf(ctx, master)
	if err != nil {
		return injury{}, err
	}
	err = replica.Kill()
	sleep.For(ctx, between(rng, 0, 500*time.Millisecond))
	return injury{target: replica.Addr(), branches: beside}, errors.Join(err, insist(replica.Restart))
}

// stopMaster lets a master stand still for longer than the others wait for it: most often its replica takes over, and
// what it answers as it wakes is lost.
func stopMaster(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	ctx = context.WithoutCancel(ctx)
	b, master, beside, err := n.target(ctx, rng)
	if err != nil {
		return injury{}, err
	}
	out := Outage{Branches: beside, From: time.Now()}
	if err := master.Pause(); err != nil {
		return injury{}, err
	}
	sleep.For(ctx, between(rng, stopped, 5*time.Second))
	if err := master.Resume(); err != nil {
		return injury{}, err
	}
	done := injury{target: master.Addr(), branches: beside}
	if err := n.Site.Cluster.WaitReady(ctx); err != nil {
		return done, err
	}
	now, err := n.Site.Cluster.NodeForSlot(ctx, b.Slot)
	if err == nil && now != master {
		out.To = time.Now()
		n.lost(out)
		done.target += ", replaced"
	}
	return done, err
}

// failover lets a replica take over in agreement with its master: nothing may be lost.
func failover(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	ctx = context.WithoutCancel(ctx)
	b, master, beside, err := n.target(ctx, rng)
	if err != nil {
		return injury{}, err
	}
	_, err = n.Site.Cluster.Failover(ctx, b.Slot)
	return injury{target: master.Addr(), branches: beside}, err
}

// migrate moves the hot branch, or another one, to another master and back.
func migrate(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	ctx = context.WithoutCancel(ctx)
	b, home, _, err := n.target(ctx, rng)
	if err != nil {
		return injury{}, err
	}
	if rng.IntN(2) == 0 {
		b = n.Branches[0]
		if home, err = n.Site.Cluster.NodeForSlot(ctx, b.Slot); err != nil {
			return injury{}, err
		}
	}
	done := injury{target: b.Name, branches: []int{b.N}}
	masters, err := n.Site.Cluster.Masters(ctx)
	if err != nil {
		return done, err
	}
	to := masters[rng.IntN(len(masters))]
	for to == home {
		to = masters[rng.IntN(len(masters))]
	}
	if err := n.Site.Cluster.MigrateSlot(ctx, b.Slot, to); err != nil {
		return done, err
	}
	sleep.For(ctx, between(rng, 50*time.Millisecond, 500*time.Millisecond))
	return done, n.Site.Cluster.MigrateSlot(ctx, b.Slot, home)
}
