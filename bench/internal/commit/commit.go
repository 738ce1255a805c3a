// Package commit measures the ways to commit one transaction, in a base cell and along several axes.
package commit

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/measure/ways"
)

// Group returns the group of these measurements.
func Group() suite.Group { return suite.Group{Name: "commit", Run: run} }

func run(ctx context.Context, env suite.Env) (report suite.Report, err error) {
	all := axes()
	if env.Short {
		all = shortened(all)
	}
	servers := &servers{}
	defer func() { err = errors.Join(err, servers.close()) }()
	r := results{tables: map[string]measure.Table{}}
	for _, axis := range all {
		for _, c := range axis.cells {
			if _, done := r.tables[c.Name]; done || !env.Wanted(c.Name) {
				continue
			}
			env.Log("%s", c.Name)
			if r.tables[c.Name], err = c.measure(ctx, env, servers); err != nil {
				return report, err
			}
		}
	}
	if env.Wanted(spread) {
		env.Log(spread)
		if r.tables[spread], err = spreading(ctx, env, servers); err != nil {
			return report, err
		}
	}
	if env.Wanted(growingMasters) {
		env.Log(growingMasters)
		if r.tables[growingMasters], err = mastersGrow(ctx, env); err != nil {
			return report, err
		}
	}
	if env.Wanted(growingShards) {
		env.Log(growingShards)
		if r.tables[growingShards], err = shardsGrow(ctx, env, servers); err != nil {
			return report, err
		}
	}
	if env.Wanted("allocations") {
		if r.allocs, err = allocations(ctx, servers); err != nil {
			return report, err
		}
	}
	return r.report(all)
}

// measure runs the cell's ways in alternation.
func (c cell) measure(ctx context.Context, env suite.Env, servers *servers) (measure.Table, error) {
	d, err := servers.get(ctx, c.on)
	if err != nil {
		return measure.Table{}, err
	}
	client := d.client(c.Callers, c.roundTrip)
	defer d.finish(ctx, client)
	c.Prefix = "bench"
	return measure.Interleave(ctx, c.Cell, ways.Commit(client, c.ways...), env.Rounds, env.Per)
}

// spread is the name of the cell that compares one master with three.
const spread = "masters 3 beside 1"

// spreading runs the same transactions on 16 tags on one server and on three masters, in alternation.
func spreading(ctx context.Context, env suite.Env, servers *servers) (measure.Table, error) {
	cell := measure.Cell{Name: spread, Callers: baseCallers, Payload: basePayload, Tags: 16, Prefix: "bench"}
	var side []measure.Way
	for _, k := range []kind{plain, masters} {
		d, err := servers.get(ctx, k)
		if err != nil {
			return measure.Table{}, err
		}
		client := d.client(cell.Callers, 0)
		defer d.finish(ctx, client)
		for _, way := range ways.Commit(client, ways.Luatx) {
			side = append(side, measure.Way{Name: string(k), Setup: way.Setup})
		}
	}
	return measure.Interleave(ctx, cell, side, env.Rounds, env.Per)
}

// finish empties the servers and closes the client.
func (d *deployment) finish(ctx context.Context, client redis.UniversalClient) {
	_ = d.empty(context.WithoutCancel(ctx), client) // if the server fails, the next cell reports it
	_ = client.Close()
}
