package luatx

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Check looks at the server once: its version (6.0 at least), its clock, and whether it may evict keys, which
// would forget ids (a warning, or an error under Config.StrictEviction). What a managed service denies, CONFIG
// or INFO, is passed over. The first commit runs Check where the caller has not.
func (t *Transactor) Check(ctx context.Context) error {
	now, err := t.client.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("luatx: check: TIME: %w", err)
	}
	t.observe(now)
	if err := t.checkVersion(ctx); err != nil {
		return err
	}
	if err := t.checkEviction(ctx); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CommitTimeout)
	defer cancel()
	return t.Check(ctx)
}

func (t *Transactor) checkVersion(ctx context.Context) error {
	info, err := t.client.Info(ctx, "server").Result()
	if err != nil {
		return t.denied("INFO", err)
	}
	version := field(info, "redis_version:")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < 6 {
		return fmt.Errorf("luatx: check: the server is Redis %s: 6.0 or later is needed", version)
	}
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

// denied passes over what the server will not tell; a server that does not answer is an error.
func (t *Transactor) denied(command string, err error) error {
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return fmt.Errorf("luatx: check: %s: %w", command, err)
	}
	t.cfg.Logger.Debug("luatx: check passed over", "command", command, "error", err)
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
