package commit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/measure/ways"
	"github.com/luatx/luatx/internal/test/redistest"
)

// The cells in which a deployment grows, with the same load.
const (
	growingMasters = "masters 1 to 12"
	growingShards  = "shards 1 to 16384"
)

const (
	scalingCallers = 8  // each commits batches of ways.BatchSize
	scalingTags    = 48 // a multiple of every number of masters
	slots          = 16384
)

// point is a size of a deployment.
type point struct {
	name string
	tags int
	on   *deployment
}

// mastersGrow commits the same batches on more and more masters, each a process, side by side.
func mastersGrow(ctx context.Context, env suite.Env) (table measure.Table, err error) {
	sizes := []int{1, 2, 3, 6, 12}
	if env.Short {
		sizes = []int{1, 3}
	}
	var points []point
	defer func() {
		for _, p := range points {
			err = errors.Join(err, p.on.close())
		}
	}()
	for _, n := range sizes {
		d, err := startMasters(ctx, n)
		if err != nil {
			return table, err
		}
		points = append(points, point{fmt.Sprint(n), scalingTags, d})
	}
	return grow(ctx, env, growingMasters, points)
}

// shardsGrow spreads the same batches over more and more shards of one server.
func shardsGrow(ctx context.Context, env suite.Env, servers *servers) (measure.Table, error) {
	d, err := servers.get(ctx, plain)
	if err != nil {
		return measure.Table{}, err
	}
	sizes := []int{1, 16, 256, 4096, slots}
	if env.Short {
		sizes = sizes[:3]
	}
	var points []point
	for _, n := range sizes {
		points = append(points, point{fmt.Sprint(n), n, d})
	}
	return grow(ctx, env, growingShards, points)
}

// grow measures batches at all points, interleaved.
func grow(ctx context.Context, env suite.Env, name string, points []point) (measure.Table, error) {
	cell := measure.Cell{Name: name, Callers: scalingCallers, Payload: basePayload}
	var side []measure.Way
	for _, p := range points {
		client := p.on.client(scalingCallers, 0)
		defer p.on.finish(ctx, client)
		side = append(side, measure.Way{Name: p.name, Setup: func(ctx context.Context, c measure.Cell) (*measure.Running, error) {
			c.Tags, c.Prefix = p.tags, "bench-"+p.name
			running, err := ways.Commit(client, ways.Batch)[0].Setup(ctx, c)
			if err != nil {
				return nil, err
			}
			return running, once(ctx, running, p.tags*ways.BatchSize)
		}})
	}
	return measure.Interleave(ctx, cell, side, env.Rounds, env.Per)
}

// once does so many operations, because the first commit of each shard makes its keys.
func once(ctx context.Context, running *measure.Running, n int) error {
	if err := running.Prepare(ctx, n); err != nil {
		return err
	}
	for i := 0; i < n; i += running.Batch {
		if err := running.Op(ctx, 0, i); err != nil {
			return err
		}
	}
	return nil
}

// growthGrid has each size beside the first.
func growthGrid(table measure.Table, caption, what string) suite.Grid {
	grid := suite.Grid{Caption: caption, Head: []string{what, "per second", "server µs per transaction", "server CPU × the first"}}
	for _, way := range table.Ways {
		ratio, err := table.Ratio(way, table.Ways[0], measure.ServerCPUs)
		if err != nil {
			continue
		}
		grid.Rows = append(grid.Rows, []string{way, value(table, way, measure.Throughput), value(table, way, measure.ServerCPUs), suite.Spread(ratio)})
	}
	return grid
}

// startMasters starts a cluster of n masters without replicas.
func startMasters(ctx context.Context, n int) (*deployment, error) {
	var nodes []*redistest.Server
	d := &deployment{cluster: true, close: func() (err error) {
		for _, node := range nodes {
			err = errors.Join(err, node.Close())
		}
		return err
	}}
	for i := range n {
		node, err := redistest.Start(ctx, redistest.Config("cluster-enabled yes", "cluster-config-file nodes.conf"))
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		nodes, d.addrs = append(nodes, node), append(d.addrs, node.Addr())
		if err := enter(ctx, node, nodes[0], i, n); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	for _, node := range nodes {
		if err := complete(ctx, node, n); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

// enter gives a node its share of the slots, and lets it meet the first one.
func enter(ctx context.Context, node, first *redistest.Server, i, n int) error {
	args := []any{"CLUSTER", "ADDSLOTS"}
	for slot := i * slots / n; slot < (i+1)*slots/n; slot++ {
		args = append(args, slot)
	}
	host, port, _ := strings.Cut(first.Addr(), ":")
	for _, command := range [][]any{args, {"CLUSTER", "SET-CONFIG-EPOCH", i + 1}, {"CLUSTER", "MEET", host, port}} {
		if _, err := ask(ctx, node, command...); err != nil {
			return err
		}
	}
	return nil
}

// complete waits until a node knows all others and their slots.
func complete(ctx context.Context, node *redistest.Server, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		info, err := ask(ctx, node, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", n)) {
			return nil
		}
		if !sleep.For(ctx, 50*time.Millisecond) {
			return fmt.Errorf("the cluster of %d masters is not ready: %w", n, ctx.Err())
		}
	}
}
