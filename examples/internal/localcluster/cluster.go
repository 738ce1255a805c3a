// Package localcluster provides the Redis Cluster of an example. Your own service has its own client instead.
package localcluster

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/luatx/luatx/examples/internal/local"
	"github.com/luatx/luatx/internal/test/redistest"
)

// Cluster is the cluster that local.EnvAddrs names, or one that the example starts: three masters and their replicas, as
// processes of redis-server with temporary directories.
type Cluster struct {
	*local.Redis
	own *redistest.Cluster3
}

// Open starts a cluster, unless local.EnvAddrs names one. If there is no redis-server, the error says how to install it.
func Open(ctx context.Context, name string) (*Cluster, error) {
	c, addrs := &Cluster{}, os.Getenv(local.EnvAddrs)
	var err error
	if addrs == "" {
		if c.own, err = redistest.StartCluster(ctx); err != nil {
			return nil, err
		}
		addrs = strings.Join(c.own.Addrs(), ",")
	}
	if c.Redis, err = local.Open(name, addrs); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// Disturb moves a slot to another master, and then makes a replica of that master take over. It does not disturb an
// external cluster, and returns false.
func (c *Cluster) Disturb(ctx context.Context, slot int) (disturbed bool, err error) {
	if c.own == nil {
		return false, nil
	}
	from, err := c.own.NodeForSlot(ctx, slot)
	if err != nil {
		return false, err
	}
	masters, err := c.own.Masters(ctx)
	if err != nil {
		return false, err
	}
	for _, to := range masters {
		if to != from {
			err = c.own.MigrateSlot(ctx, slot, to)
			break
		}
	}
	if err != nil {
		return false, err
	}
	_, err = c.own.Failover(ctx, slot)
	return true, err
}

// Close stops the cluster, or deletes the example's keys on an external one.
func (c *Cluster) Close() error { return errors.Join(c.Redis.Close(), c.end()) }

func (c *Cluster) end() error {
	if c.own == nil {
		return nil
	}
	return c.own.Close()
}
