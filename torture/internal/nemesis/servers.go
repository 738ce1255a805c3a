package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/torture/internal/site"
)

func single(n *Nemeses) bool { return n.Site.Single != nil }

var serverKinds = []kind{
	{name: "kill-server", track: "servers", fits: single, inflict: killServer},
	{name: "stop-server", track: "servers", fits: single, inflict: stopServer},
	{name: "full-disk", track: "servers", fits: func(n *Nemeses) bool { return n.Site.Disk != nil }, inflict: fullDisk},
	{name: "flush-scripts", track: "servers", inflict: flushScripts},
	{name: "full-memory", track: "servers", inflict: fullMemory},
	{name: "no-connections", track: "servers", inflict: noConnections},
}

// killServer kills the server (SIGKILL) and restarts it with the data on its disk.
func killServer(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	server := n.Site.Single
	if err := server.Kill(); err != nil {
		return injury{}, err
	}
	sleep.For(ctx, between(rng, 0, 500*time.Millisecond))
	return injury{}, restart(server)
}

// restart starts the server and rewrites its append-only file. If the file ends within a command of a transaction, the server
// keeps the commands in front of it in the file, without their EXEC. At its next start, it would run them with the
// transaction that follows.
func restart(server *redistest.Server) error {
	if err := insist(server.Restart); err != nil {
		return err
	}
	client := site.Admin(server.Addr())
	defer func() { _ = client.Close() }() // the client is not used again
	rewrite := func(ctx context.Context) error { return client.BgRewriteAOF(ctx).Err() }
	return errors.Join(insist(rewrite), insist(func(ctx context.Context) error {
		state := client.InfoMap(ctx, "persistence")
		item := func(name string) string { return state.Item("Persistence", name) }
		switch {
		case item("aof_rewrite_in_progress") != "0", item("aof_rewrite_scheduled") != "0":
			return errors.Join(errRewriting, state.Err())
		case item("aof_last_bgrewrite_status") != "ok":
			return errors.Join(errRewriting, rewrite(ctx))
		}
		return nil
	}))
}

var errRewriting = errors.New("the server has not rewritten its append-only file")

// stopServer pauses the server (SIGSTOP) for longer than leases.
func stopServer(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	if err := n.Site.Single.Pause(); err != nil {
		return injury{}, err
	}
	sleep.For(ctx, between(rng, stopped, stopped+2*time.Second))
	return injury{}, n.Site.Single.Resume()
}

// fullDisk fills the disk of the append-only file. The server ends at its next write, and restarts when there is room
// again.
func fullDisk(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	server, disk := n.Site.Single, n.Site.Disk
	err := disk.Fill(ctx)
	deadline := time.Now().Add(10 * time.Second)
	for err == nil && server.Pid() != 0 && time.Now().Before(deadline) && sleep.For(ctx, 20*time.Millisecond) {
		continue
	}
	target := "the server exited"
	if server.Pid() != 0 {
		target = "the server did not write"
	}
	sleep.For(ctx, between(rng, 0, 200*time.Millisecond))
	if err := errors.Join(err, insist(disk.Empty)); err != nil || server.Pid() != 0 {
		return injury{target: target}, err
	}
	return injury{target: target}, restart(server)
}

// admins calls do with a client of each server.
func (n *Nemeses) admins(addrs []string, do func(client *redis.Client) error) error {
	var errs []error
	for _, addr := range addrs {
		client := site.Admin(addr)
		if err := do(client); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", addr, err))
		}
		_ = client.Close() // the client is not used again
	}
	return errors.Join(errs...)
}

// flushScripts repeatedly flushes the scripts of all servers.
func flushScripts(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	until := time.Now().Add(between(rng, 100*time.Millisecond, time.Second))
	for {
		if err := n.admins(n.Site.Plan.Addrs, func(c *redis.Client) error { return c.ScriptFlush(context.WithoutCancel(ctx)).Err() }); err != nil {
			return injury{}, err
		}
		if time.Now().After(until) || !sleep.For(ctx, 100*time.Millisecond) {
			return injury{}, nil
		}
	}
}

// fullMemory makes every server reach its maxmemory, with a policy that evicts nothing.
func fullMemory(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	ctx = context.WithoutCancel(ctx)
	err := n.admins(n.Site.Plan.Addrs, func(c *redis.Client) error {
		info := c.InfoMap(ctx, "memory")
		used, err := strconv.ParseInt(info.Item("Memory", "used_memory"), 10, 64)
		if err != nil {
			return errors.Join(info.Err(), fmt.Errorf("INFO memory: used_memory: %w", err))
		}
		return c.ConfigSet(ctx, "maxmemory", strconv.FormatInt(used/2, 10)).Err()
	})
	sleep.For(ctx, between(rng, 200*time.Millisecond, time.Second))
	return injury{}, errors.Join(err, insist(func(ctx context.Context) error {
		return n.admins(n.Site.Plan.Addrs, func(c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", "0").Err() })
	}))
}

// noConnections closes all client connections of one server, which rejects new ones for a while.
func noConnections(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	ctx = context.WithoutCancel(ctx)
	addrs := n.Site.Plan.Addrs
	addr := addrs[rng.IntN(len(addrs))]
	client := site.Admin(addr)
	defer func() { _ = client.Close() }() // the client is not used again
	done := injury{target: addr}
	before, err := client.ConfigGet(ctx, "maxclients").Result()
	if err != nil {
		return done, err
	}
	if err := client.ConfigSet(ctx, "maxclients", "1").Err(); err != nil {
		return done, err
	}
	err = client.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
	sleep.For(ctx, between(rng, 200*time.Millisecond, time.Second))
	return done, errors.Join(err, insist(func(ctx context.Context) error { // on its existing connection
		return client.ConfigSet(ctx, "maxclients", before["maxclients"]).Err()
	}))
}
