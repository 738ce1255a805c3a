package undo_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

// TestUndoKeepsToTheCap holds that whatever is kept for an undo is kept up to UndoBytes, with MEMORY and without.
func TestUndoKeepsToTheCap(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all", "-memory")
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.UndoBytes = 100 })
	k := rig.Key(t, tr, "a", "k")
	long := ""
	for len(long) < 200 { // of random letters: DUMP compresses
		long += rand.Text()
	}
	rig.Run(t, admin, k, "SET K "+long+";HSET K:h f "+long+" g v;RPUSH K:l "+long+";SET K:fits "+long[:100])
	before := rig.Dump(t, admin, tr)
	for commands, refused := range map[string]bool{
		"APPEND K y":                 true,
		"SET K y":                    true,
		"MSET K:new y K y":           true,
		"INCR K":                     true,
		"HSET K:h f w":               true,
		"HDEL K:h f g":               true,
		"HSET K:h g w":               false,
		"LPOP K:l":                   true,
		"LPUSH K:l y":                false,
		"APPEND K:fits y":            false,
		"DEL K:l":                    true,
		"XADD K:new * f " + long:     false,
		"SET K:new " + long:          false,
		"SADD K:new " + long:         false,
		"EXPIRE K 100;PERSIST K":     false,
		"HINCRBY K:h n 1;HDEL K:h n": false,
	} {
		_, err := rig.Transact(t, tr, k, commands+";LPUSH K wrong")
		failed, ok := errors.AsType[*luatx.CommandError](err)
		if !ok || strings.Contains(failed.Text, "more than 100 bytes") != refused || strings.Contains(failed.Text, "WRONGTYPE") == refused {
			t.Errorf("%.40s: %v", commands, err)
		}
		rig.NoTrace(t, admin, tr, before)
	}
}

// TestUndoOfAnEmptyString holds that a key with the empty string is not taken for none.
func TestUndoOfAnEmptyString(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr := rig.NewTransactor(t, client)
	k := rig.Key(t, tr, "a", "k")
	client.Set(t.Context(), k, "", time.Hour)
	before := rig.Dump(t, client, tr)
	if _, err := rig.Transact(t, tr, k, "APPEND K x;SET K y;LPUSH K wrong"); err == nil {
		t.Error("no error")
	}
	rig.NoTrace(t, client, tr, before)
}

// TestUndoOfManyFields holds the undo of as many values as a command takes: Lua cannot unpack twice that at once.
func TestUndoOfManyFields(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr := rig.NewTransactor(t, client)
	k := rig.Key(t, tr, "a", "k")
	hset, zadd, hdel, zrem := "HSET K:h", "ZADD K:z", "HDEL K:h", "ZREM K:z"
	for i := range 4990 {
		hset += fmt.Sprintf(" f%d %d", i, i)
		zadd += fmt.Sprintf(" %d m%d", i, i)
		hdel += fmt.Sprintf(" f%d", i)
		zrem += fmt.Sprintf(" m%d", i)
	}
	rig.Run(t, client, k, hset+";"+zadd+";SET K v")
	before := rig.Dump(t, client, tr)
	_, err := rig.Transact(t, tr, k, hdel+";"+zrem+";LPUSH K wrong")
	if failed, ok := errors.AsType[*luatx.CommandError](err); !ok || failed.Index != 2 {
		t.Errorf("%.200v", err)
	}
	rig.NoTrace(t, client, tr, before)
}

// TestUndoThatCannotRead holds that a write whose old value the user may not read is refused, and not taken for one of
// the wrong type, which would change nothing.
func TestUndoThatCannotRead(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	tr := rig.NewTransactor(t, client)
	k := rig.Key(t, tr, "a", "k")
	rig.Run(t, admin, k, "SET K:s v;HSET K:h f v;SADD K:set a;ZADD K:z 1 a;RPUSH K:l a;SET K v")
	before := rig.Dump(t, admin, tr)
	for read, command := range map[string]string{
		"getrange": "SET K:s w", "hmget": "HSET K:h f w", "sismember": "SADD K:set b", "zscore": "ZADD K:z 2 a", "llen": "LPUSH K:l b",
	} {
		rig.Grant(t, admin, "+@all", "-"+read) // since the check
		_, err := rig.Transact(t, tr, k, command+";LPUSH K wrong")
		if err == nil || !strings.Contains(err.Error(), "docs/acl.md") {
			t.Errorf("without %s: %v", read, err)
		}
		rig.NoTrace(t, admin, tr, before)
	}
}

// TestUndoWithinABatch holds that each transaction of a script leaves an undo of its own.
func TestUndoWithinABatch(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx, tr := t.Context(), rig.NewTransactor(t, client)
	k := rig.Key(t, tr, "a", "k")
	tx := func(n byte, commands ...commit.Command) commit.Commit {
		return commit.Commit{
			Digest: string([]byte{n}) + "23456789abcdef0", Token: string([]byte{n}) + "base567\x00\x01",
			NotAfter: time.Now().Add(time.Minute), Keys: []string{k, k + "2", k + "3"}, Commands: commands,
		}
	}
	push := commit.Command{Head: "d13", Args: []any{"RPUSH", k, "v"}} // by DUMP
	batch := []commit.Commit{
		tx('a', push, rig.Set(k+"2", "1")),
		tx('d', rig.Set(k+"3", "kept"), rig.Set(k+"2", "d")),
		tx('b', rig.Set(k+"2", "2"), push, commit.Command{Head: "h04", Args: []any{"HSET", k, "f", "v"}}, rig.Set(k+"2", "3")),
		tx('c', push, rig.Set(k+"2", "4")),
	}
	outcomes, _, err := rig.Commit(ctx, tr, link.Of(tr).Scripts.Shard(slot.OfTag("a")), batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []commit.State{commit.Committed, commit.Committed, commit.Failed, commit.Committed} {
		if outcomes[i].State != want {
			t.Errorf("transaction %d: %+v", i, outcomes[i])
		}
	}
	if got := client.Get(ctx, k+"3").Val(); got != "kept" {
		t.Errorf("the neighbour's string is %q", got)
	}
	if n := client.LLen(ctx, k).Val(); n != 2 {
		t.Errorf("%d values were pushed, want 2", n)
	}
}
