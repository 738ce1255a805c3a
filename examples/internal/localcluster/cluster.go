// Package localcluster gives an example the Redis Cluster that it runs on. Your own service has a client of its own in
// its place.
package localcluster

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/luatx/luatx/examples/internal/local"
	"github.com/luatx/luatx/internal/test/redistest"
)

// Cluster is the cluster that local.EnvAddrs names, or one of the example's own: three masters and their replicas, in
// processes of redis-server and temporary directories.
type Cluster struct {
	*local.Redis
	own *redistest.Cluster3
}

// Open starts a cluster, unless local.EnvAddrs names one. Where there is no redis-server the error says how to get one.
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

// Disturb moves a slot to another master, and then makes a replica of that one take over. It leaves a cluster that is
// not the example's own alone, and reports that.
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

// Close ends the cluster, or deletes what the example has written on one that lives on.
func (c *Cluster) Close() error { return errors.Join(c.Redis.Close(), c.end()) }

func (c *Cluster) end() error {
	if c.own == nil {
		return nil
	}
	return c.own.Close()
}
