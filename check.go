package luatx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Check looks at the server once: its version (6.0 at least), its clock, whether it may evict keys, which would
// forget ids (a warning, or an error under Config.StrictEviction), and what its user may do. Without a command that
// takes writes back it fails, with a RefusedError that names it; without DUMP and RESTORE it goes on, and a
// transaction that cannot be undone without them is refused. What a managed service denies, CONFIG or INFO, is
// passed over with a warning. It takes Config.CommitTimeout at most. The first commit runs Check where the caller has not.
func (t *Transactor) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CommitTimeout) // some of it is asked for until there is an answer
	defer cancel()
	now, err := t.client.Time(ctx).Result()
	if err != nil {
		return checkError("TIME", err)
	}
	t.observe(now)
	if err := t.checkVersion(ctx); err != nil {
		return err
	}
	if err := t.checkEviction(ctx); err != nil {
		return err
	}
	if err := t.checkUndo(ctx); err != nil {
		return err
	}
	t.checked.Store(true)
	return nil
}

func (t *Transactor) ensureChecked(ctx context.Context) error {
	if t.checked.Load() {
		return nil
	}
	t.checkMu.Lock()
	defer t.checkMu.Unlock()
	if t.checked.Load() {
		return nil
	}
	return t.Check(ctx)
}

func (t *Transactor) checkVersion(ctx context.Context) error {
	info, err := t.client.Info(ctx, "server").Result()
	if err != nil {
		return t.denied("INFO", err)
	}
	version := field(info, "redis_version:")
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	known := err == nil
	if known && n < 6 {
		return fmt.Errorf("luatx: check: the server is Redis %s: 6.0 or later is needed", version)
	}
	t.scripts.WakePlainly(known && n < 7)
	return nil
}

func (t *Transactor) checkEviction(ctx context.Context) error {
	config, err := t.client.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return t.denied("CONFIG", err)
	}
	policy := config["maxmemory-policy"]
	if policy == "" || policy == "noeviction" {
		return nil
	}
	if t.cfg.StrictEviction {
		return fmt.Errorf("luatx: check: maxmemory-policy is %s, which may forget ids and events: set noeviction", policy)
	}
	t.cfg.Logger.Warn("luatx: the server may evict keys, and with them ids and events: set maxmemory-policy noeviction", "policy", policy)
	return nil
}

// checkUndo asks for the rights of the undo, on any shard: another one where it is asked again.
func (t *Transactor) checkUndo(ctx context.Context) error {
	slots := t.cfg.Keyspace.Slots()
	lacks, restores, err := t.scripts.Probe(ctx, t.scripts.Shard(slots[rand.N(len(slots))]))
	switch {
	case err != nil:
		return checkError("the rights of the undo", err)
	case len(lacks) > 0:
		return &RefusedError{
			Code:   "NOPERM",
			Text:   "check: the user may not run, or the server does not know, what takes writes back: " + strings.Join(lacks, ", "),
			Remedy: "grant +" + strings.ToLower(strings.Join(lacks, " +")) + " to the user, as docs/acl.md says",
		}
	case !restores:
		t.cfg.Logger.Info("luatx: DUMP or RESTORE is denied, or knows strings only: a transaction that cannot be undone without them is refused; docs/acl.md says how to grant them")
	}
	return nil
}

// checkError is what kept the server from being looked at: its own refusal, or its silence.
func checkError(what string, err error) error {
	if refused := refusal(err); refused != nil {
		return refused
	}
	return fmt.Errorf("luatx: check: %s: %w", what, err)
}

// denied passes over what the server will not tell, and says so; a server that does not answer is an error.
func (t *Transactor) denied(command string, err error) error {
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return checkError(command, err)
	}
	t.cfg.Logger.Warn("luatx: the server denies what the check asks it by: see to its version (6.0 or later) and maxmemory-policy (noeviction) yourself", "command", command, "error", err)
	return nil
}

// field reads one line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
