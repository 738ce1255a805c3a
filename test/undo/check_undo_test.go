package undo_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
)

// takesBack are the commands that no undo can do without, on every server.
var takesBack = strings.Fields(`GETRANGE EXISTS TYPE HMGET SISMEMBER ZSCORE LLEN XLEN UNLINK SET HSET HDEL SADD SREM ZADD ZREM LTRIM XDEL
	PERSIST PEXPIREAT`)

// TestCheckOfTheUndo holds that a user who lacks a command of the undo hears so at the start, by name.
func TestCheckOfTheUndo(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	for _, name := range takesBack {
		rig.Grant(t, admin, "+@all", "-"+name)
		tr, err := luatx.New(client, luatx.Config{Namespace: "n"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return tx.Pipeline().Set(t.Context(), "{a}", "v", 0).Err()
		})
		var refused *luatx.RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Text, name) || !strings.Contains(refused.Remedy, "+"+strings.ToLower(name)) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if state, err := redistest.Dump(t.Context(), admin); err != nil || len(state.Keys) > 0 {
		t.Errorf("the check left %v, %v", state.Keys, err)
	}
}

// writes tells how often a shard was written for the first time: HSETNX sets the mark.
func writes(t testing.TB, admin *redis.Client) string {
	t.Helper()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, stats, _ := strings.Cut(info, "cmdstat_hsetnx:calls=")
	calls, _, _ := strings.Cut(stats, ",")
	return calls
}

// TestUndoWithoutRestore holds what a user without DUMP or RESTORE gets: strings and keys that do not exist are
// undone, anything else is refused before the first write, and one line of the log says so at the start.
func TestUndoWithoutRestore(t *testing.T) {
	t.Parallel()
	for _, right := range []string{"-dump", "-restore", "-@dangerous"} {
		client, admin := rig.NewUser(t, "+@all", right, "+info")
		log := &rig.Lines{}
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		if got := strings.Count(log.String(), "RESTORE"); got != 1 {
			t.Errorf("%s: the log says %q", right, log)
		}
		testWithoutRestore(t, right, admin, tr)
		if writes(t, admin) == "" {
			t.Error("commits are not counted: the test shows nothing")
		}
	}
}

func testWithoutRestore(t *testing.T, right string, admin *redis.Client, tr *luatx.Transactor) {
	t.Helper()
	k := rig.Key(t, tr, "a", "k")
	rig.Run(t, admin, k, "SET K:s old PX 100000;HSET K:h f v;RPUSH K:l a b;PFADD K:hll a b;ZADD K:z 1 a;XADD K:x 1-1 f v")
	before := rig.Dump(t, admin, tr)
	for _, c := range []string{
		"SET K:new v;DEL K:h;SET K:new w", "DEL K:h;SET K:new v", "SET K:h v;SET K:new v", "MSET K:s 1 K:h 2;SET K:new v", "LPOP K:l;SET K:new v",
		"EXPIRE K:l -1;SET K:new v", "RENAME K:l K:s;SET K:new v", "BITOP AND K:h K:s;SET K:new v", "XADD K:x 2-2 f v;SET K:new v",
		"ZPOPMIN K:z;SET K:new v",
	} {
		count := writes(t, admin)
		_, err := rig.Transact(t, tr, k, c)
		var failed *luatx.CommandError
		if !errors.As(err, &failed) || !strings.Contains(failed.Text, "cannot be undone on this server") || !strings.Contains(failed.Text, "+restore") {
			t.Errorf("%s, %s: %v", right, c, err)
		}
		if writes(t, admin) != count {
			t.Errorf("%s, %s: refused after the first write", right, c)
		}
	}
	rig.NoTrace(t, admin, tr, before)
	for _, c := range []string{ // undone without
		"DEL K:s;LPUSH K:s x;HSET K:l f v", "DEL K:none K:s;HSET K:l f v", "PFADD K:hll c;DEL K:hll;HSET K:l f v", "RENAME K:s K:new;HSET K:l f v",
		"BITOP NOT K:new K:s;HSET K:l f v", "EXPIRE K:s -1;HSET K:l f v", "SET K:new v;LPUSH K:h x", "XADD K:x * f v;DEL K:s;HSET K:l f v",
	} {
		_, err := rig.Transact(t, tr, k, c)
		var failed *luatx.CommandError
		if !errors.As(err, &failed) || !strings.Contains(failed.Text, "WRONGTYPE") {
			t.Errorf("%s, %s: %v", right, c, err)
		}
		rig.NoTrace(t, admin, tr, before)
	}
	if _, err := rig.Transact(t, tr, k, "SET K:new v;LPOP K:l"); err != nil {
		t.Errorf("%s: as the last command: %v", right, err)
	}
}
