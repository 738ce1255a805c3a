package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	masters  = 3
	numSlots = 16384
)

// Cluster3 is a cluster of three masters with one replica each. Roles change by failover: ask Master and Replica.
type Cluster3 struct {
	nodes []*Server // at first the masters, then their replicas in the same order
}

// Cluster starts a cluster for this test; it ends with the test. The node timeout is 2 s.
func Cluster(t testing.TB, opts ...Option) *Cluster3 {
	t.Helper()
	ownServers(t)
	Need(t)
	c, err := StartCluster(t.Context(), opts...)
	Must(t, err)
	return closed(t, c)
}

// SharedCluster returns the one cluster of this test process. Tests that use it keep apart by Tag and Namespace; they
// neither flush, stop nor resize it. Main ends it.
func SharedCluster(t testing.TB) *Cluster3 {
	t.Helper()
	ownServers(t)
	Need(t)
	c, err := sharedCluster()
	Must(t, err)
	return c
}

var sharedCluster = sync.OnceValues(func() (*Cluster3, error) {
	c, err := StartCluster(context.Background())
	if err == nil {
		shared.add(c.Close)
	}
	return c, err
})

// StartCluster starts a cluster without a test; Close ends it.
func StartCluster(ctx context.Context, opts ...Option) (*Cluster3, error) {
	c := &Cluster3{nodes: make([]*Server, 2*masters)}
	opts = append([]Option{Config(
		"cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 2000",
		"cluster-replica-validity-factor 0", // a replica that lags may still be promoted
		"cluster-migration-barrier 100",     // replicas stay with their masters
	)}, opts...)
	err := parallel(len(c.nodes), func(i int) (err error) {
		c.nodes[i], err = Start(ctx, opts...)
		return err
	})
	if err == nil {
		err = c.join(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster3) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i, node := range c.nodes[:masters] {
		slots := node.do(ctx, append([]any{"CLUSTER", "ADDSLOTS"}, slotsOf(i)...)...).Err()
		if err := errors.Join(slots, node.do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err()); err != nil {
			return err
		}
	}
	for i, node := range c.nodes { // everybody is introduced: gossip would take longer
		for _, other := range c.nodes[i+1:] {
			if err := node.do(ctx, "CLUSTER", "MEET", "127.0.0.1", other.port).Err(); err != nil {
				return err
			}
		}
	}
	if err := c.eachNode(ctx, c.knowsAll); err != nil {
		return err
	}
	for i, replica := range c.nodes[masters:] {
		id, err := c.nodes[i].do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		if err := replica.do(ctx, "CLUSTER", "REPLICATE", id).Err(); err != nil {
			return err
		}
	}
	return c.WaitReady(ctx)
}

// slotsOf are the slots that master i starts with.
func slotsOf(i int) []any {
	var slots []any
	for slot := i * numSlots / masters; slot < (i+1)*numSlots/masters; slot++ {
		slots = append(slots, slot)
	}
	return slots
}

func (c *Cluster3) knowsAll(ctx context.Context, node *Server) error {
	view, err := node.view(ctx)
	if err != nil {
		return err
	}
	connected := 0
	for _, other := range view {
		if other.connected && !other.has("handshake") {
			connected++
		}
	}
	if connected != len(c.nodes) {
		return fmt.Errorf("%s knows %d of %d nodes", node.addr, connected, len(c.nodes))
	}
	return nil
}

// WaitReady waits until every running node finds the cluster in order and every replica follows its master.
func (c *Cluster3) WaitReady(ctx context.Context) error {
	return c.eachNode(ctx, func(ctx context.Context, node *Server) error {
		info, err := node.do(ctx, "CLUSTER", "INFO").Text()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:16384") {
			return fmt.Errorf("%s reports %q", node.addr, info)
		}
		return c.seesRoles(ctx, node)
	})
}

// seesRoles checks that the node sees three masters, and of the others that each is a replica or has failed; and that
// it is in sync itself, where it is a replica.
func (c *Cluster3) seesRoles(ctx context.Context, node *Server) error {
	view, err := node.view(ctx)
	if err != nil {
		return err
	}
	serving, others := 0, 0
	for _, p := range view {
		switch {
		case p.has("master") && len(p.slots) > 0 && !p.has("fail"):
			serving++
		case p.has("slave"), p.has("fail"):
			others++
		}
		if p.has("myself") && p.has("slave") {
			if err := node.inSync(ctx); err != nil {
				return err
			}
		}
	}
	if serving != masters || others != len(c.nodes)-masters {
		return fmt.Errorf("%s sees %d masters and %d replicas", node.addr, serving, others)
	}
	return nil
}

// eachNode polls every running node until check returns nil for it.
func (c *Cluster3) eachNode(ctx context.Context, check func(context.Context, *Server) error) error {
	return parallel(len(c.nodes), func(i int) error {
		return poll(ctx, 4*pollEvery, func() error {
			if c.nodes[i].Pid() == 0 {
				return nil
			}
			return check(ctx, c.nodes[i])
		})
	})
}

// Addrs are the servers' addresses.
func (c *Cluster3) Addrs() []string {
	var addrs []string
	for _, node := range c.nodes {
		addrs = append(addrs, node.addr)
	}
	return addrs
}

// Client returns a new client with go-redis' defaults, changed by the functions given; it is closed when the test ends.
func (c *Cluster3) Client(t testing.TB, change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	opts := &redis.ClusterOptions{Addrs: c.Addrs()}
	login(&opts.Username, &opts.Password)
	for _, f := range change {
		f(opts)
	}
	return closed(t, redis.NewClusterClient(opts))
}

// Close kills the nodes and removes their directories.
func (c *Cluster3) Close() error {
	return parallel(len(c.nodes), func(i int) error {
		if c.nodes[i] == nil {
			return nil
		}
		return c.nodes[i].Close()
	})
}

// parallel runs f for 0 to n-1 at once and returns all errors.
func parallel(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
