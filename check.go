package luatx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/shard"
)

// Check checks that the server suits luatx: its version (6.0 or later), its clock, its eviction policy and the rights of its
// user. If the server may evict keys, and so forget ids, Check logs a warning, or returns an error under Config.StrictEviction.
// If a command is missing that undoes writes, Check returns a RefusedError that names it. If DUMP or RESTORE is missing, Check
// succeeds, and commits reject transactions that cannot be undone without them. If a managed service denies INFO, Check skips the
// version and the eviction policy and logs a warning.
//
// On a cluster, Check uses one master, that of a random slot of the keyspace. While the server does not reply, is loading or
// fails over, Check retries until ctx ends, for at most Config.CommitTimeout. Unless the caller has run Check, the first commit
// runs it on the master that it commits to. Commits that need the check at the same time share one run, each under its own
// context.
func (t *Transactor) Check(ctx context.Context) error {
	slots := t.cfg.Keyspace.Slots()
	return t.check(ctx, t.shards.Shard(slots[rand.N(len(slots))]), nil)
}

// ensureChecked runs the check on a shard's node unless a check has passed. It also returns nil if another check passes
// meanwhile.
func (t *Transactor) ensureChecked(ctx context.Context, home shard.Shard) error {
	if t.checked.Load() {
		return nil
	}
	return t.check(ctx, home, t.passed)
}

// check runs the check on a shard's node, or joins the run in progress. It returns nil as soon as over is closed.
func (t *Transactor) check(ctx context.Context, home shard.Shard, over <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CommitTimeout)
	defer cancel()
	// A cluster client must have loaded the cluster's topology before it can name the node of a slot.
	err := t.checks.Do(ctx, over, "the cluster", func(ctx context.Context, failed func(error)) error {
		return t.runner.Ask(ctx, home.Void, failed, func(context.Context, redis.UniversalClient) error { return nil })
	})
	if err != nil {
		return checkError(err)
	}
	err = t.checks.Do(ctx, over, "node "+t.runner.Node(ctx, home.Void), func(ctx context.Context, failed func(error)) error {
		return (&nodeCheck{t, home, failed}).run(ctx)
	})
	if err != nil {
		return checkError(err)
	}
	if t.checked.CompareAndSwap(false, true) {
		close(t.passed)
	}
	return nil
}

// A nodeCheck is one run of the check on a shard's node. It passes the error of each failed attempt to failed.
type nodeCheck struct {
	*Transactor
	home   shard.Shard
	failed func(error)
}

func (c *nodeCheck) run(ctx context.Context) error {
	now, err := ask(ctx, c, func(ctx context.Context, node redis.UniversalClient) (time.Time, error) {
		return node.Time(ctx).Result()
	})
	if err != nil {
		return fmt.Errorf("TIME: %w", err)
	}
	c.setClock(now)
	if err := c.server(ctx); err != nil {
		return err
	}
	return c.undo(ctx)
}

// ask runs a command on the shard's node, with the retries of Runner.Ask, and returns its reply.
func ask[T any](ctx context.Context, c *nodeCheck, command func(context.Context, redis.UniversalClient) (T, error)) (reply T, err error) {
	err = c.runner.Ask(ctx, c.home.Void, c.failed, func(ctx context.Context, node redis.UniversalClient) error {
		reply, err = command(ctx, node)
		return err
	})
	return reply, err
}

// server checks the version and the eviction policy in the reply to INFO. It does not use CONFIG GET, because a user who may run
// that can read the server's passwords.
func (c *nodeCheck) server(ctx context.Context) error {
	info, err := ask(ctx, c, func(ctx context.Context, node redis.UniversalClient) (string, error) {
		return node.Info(ctx).Result()
	})
	if err != nil {
		return c.denied("INFO", err)
	}
	if err := c.version(field(info, "redis_version:")); err != nil {
		return err
	}
	return c.eviction(field(info, "maxmemory_policy:"))
}

func (c *nodeCheck) version(version string) error {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	known := err == nil
	if known && n < 6 {
		return fmt.Errorf("the server is Redis %s: 6.0 or later is needed", version)
	}
	c.runner.WakePlainly(known && n < 7)
	return nil
}

func (c *nodeCheck) eviction(policy string) error {
	switch {
	case policy == "noeviction":
		return nil
	case policy == "":
		c.cfg.Logger.Warn("luatx: the server does not report its maxmemory-policy: make sure that it is noeviction")
		return nil
	case c.cfg.StrictEviction:
		return fmt.Errorf("maxmemory-policy is %s, which may forget ids and events; set noeviction", policy)
	}
	c.cfg.Logger.Warn("luatx: the server may evict keys, and with them ids and events: set maxmemory-policy noeviction", "policy", policy)
	return nil
}

// undo checks that the user may run the commands of the undo.
func (c *nodeCheck) undo(ctx context.Context) error {
	lacks, restores, err := c.commits.Probe(ctx, c.home, c.failed)
	switch {
	case err != nil:
		return fmt.Errorf("the rights of the undo: %w", err)
	case len(lacks) > 0:
		return &RefusedError{
			Code:   "NOPERM",
			Text:   "check: the user may not run, or the server does not know, what takes writes back: " + strings.Join(lacks, ", "),
			Remedy: "grant +" + strings.ToLower(strings.Join(lacks, " +")) + " to the user, as docs/acl.md says",
		}
	case !restores:
		c.cfg.Logger.Info("luatx: DUMP or RESTORE is denied, or knows strings only: a transaction that cannot be undone without them is refused; docs/acl.md says how to grant them")
	}
	return nil
}

// checkError returns the error of a failed check. If the server's last reply was a rejection, it returns the RefusedError.
func checkError(err error) error {
	if named, ok := errors.AsType[*RefusedError](err); ok {
		return named
	}
	if refused := refusal(err); refused != nil {
		return refused
	}
	return fmt.Errorf("luatx: check: %w", err)
}

// denied logs a warning and returns nil if the server denies a command of the check, and returns any other error.
func (c *nodeCheck) denied(command string, err error) error {
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return fmt.Errorf("%s: %w", command, err)
	}
	c.cfg.Logger.Warn("luatx: the server denies what the check asks it by: see to its version (6.0 or later) and maxmemory-policy (noeviction) yourself", "command", command, "error", err)
	return nil
}

// field returns the value of one line of INFO, or "" if there is none.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
