package undo_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

func TestIDWhoseUndoFailedStaysBroken(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	ctx, tr := t.Context(), rig.NewTransactor(t, client)
	rig.Grant(t, admin, "-restore") // after the check
	k, wrong := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "wrong")
	admin.HSet(ctx, k, "f", "v")
	admin.Set(ctx, wrong, "text", 0)
	var seen error
	run := func() error {
		return assert.ErrOf(tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			_, seen = tx.Seen(ctx)
			tx.Pipeline().Del(ctx, k)
			tx.Pipeline().HSet(ctx, wrong, "f", "v")
			tx.Pipeline().Set(ctx, k, "not reached", 0)
			return nil
		}, luatx.WithID("broken")))
	}
	for range 2 {
		var broken *luatx.RollbackError
		if err := run(); !errors.As(err, &broken) || !strings.Contains(broken.Text, k) || !strings.Contains(broken.Text, "WRONGTYPE") {
			t.Errorf("error %v", err)
		}
	}
	var broken *luatx.RollbackError
	if !errors.As(seen, &broken) || !strings.Contains(broken.Text, "WRONGTYPE") {
		t.Errorf("Seen returns %v", seen)
	}
	admin.Del(ctx, link.Of(tr).Scripts.Shard(slot.OfTag("a")).Key("broken"))
	if err := run(); !errors.As(err, &broken) || broken.Text != "" {
		t.Errorf("after its text was lost: %v", err)
	}
}

func TestRollbackErrorSaysWhyTheTransactionWasUndone(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	ctx := redistest.Soon(t)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.OutboxCapacity = 1
		c.Procedures = []luatx.Procedure{{Name: "abort", Source: "abort('later')"}, {Name: "flood", Source: "emit('{}', '1') emit('{}', '2')"}}
	})
	rig.Grant(t, admin, "-restore") // after the check
	for name, want := range map[string]string{"abort": "command 2: aborted: later; not restored:", "flood": "command 2: the outbox is full: events; not restored:"} {
		k := rig.Key(t, tr, "a", name)
		redistest.Must(t, admin.HSet(ctx, k, "f", "v").Err())
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Pipeline().Del(ctx, k)
			tx.Call(name, nil)
			return nil
		})
		if broken, ok := errors.AsType[*luatx.RollbackError](err); !ok || !strings.Contains(broken.Text, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCopyOfABrokenTransactionInItsBatchIsBroken(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	ctx, tr := t.Context(), rig.NewTransactor(t, client)
	rig.Grant(t, admin, "-restore")
	k, wrong := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "wrong")
	admin.HSet(ctx, k, "f", "v")
	admin.Set(ctx, wrong, "text", 0)
	broken := commit.Commit{
		Digest: "0123456789abcdef", Token: "base5678\x00\x01", NotAfter: time.Now().Add(time.Minute), Keys: []string{k, wrong},
		Commands: []commit.Command{
			{Head: "D02", Args: []any{"DEL", k}},
			{Head: "h04", Args: []any{"HSET", wrong, "f", "v"}},
			{Head: "k03", Args: []any{"SET", k, "not reached"}},
		},
	}
	copied := broken
	copied.Token = "another8\x00\x01"
	outcomes, _, err := rig.Commit(ctx, tr, link.Of(tr).Scripts.Shard(slot.OfTag("a")), []commit.Commit{broken, copied})
	redistest.Must(t, err)
	for i, out := range outcomes {
		if out.State != commit.Broken || !strings.Contains(out.Text, k) {
			t.Errorf("transaction %d: %+v", i, out)
		}
	}
}

func TestCommandsThatMiniredisCannotUndoAreRefused(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx, tr := t.Context(), rig.NewTransactor(t, client)
	k := rig.Key(t, tr, "a", "k")
	client.RPush(ctx, k, "a", "b")
	before := rig.Dump(t, client, tr)
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		tx.Pipeline().Set(ctx, k+"2", "v", 0)
		tx.Pipeline().LPop(ctx, k)
		tx.Pipeline().Set(ctx, k+"3", "v", 0)
		return nil
	})
	var failed *luatx.CommandError
	if !errors.As(err, &failed) || failed.Index != 1 || !strings.Contains(failed.Text, "cannot be undone on this server") {
		t.Errorf("error %v", err)
	}
	rig.NoTrace(t, client, tr, before)
}

// takesBack lists the commands that every undo needs, on every server.
var takesBack = strings.Fields(`GETRANGE EXISTS TYPE HMGET SISMEMBER ZSCORE LLEN XLEN UNLINK SET HSET HDEL SADD SREM ZADD ZREM LTRIM XDEL
	PERSIST PEXPIREAT`)

// TestCheckNamesCommandsThatTheUndoLacks has a user who lacks a command of the undo, and gets the error at the start.
func TestCheckNamesCommandsThatTheUndoLacks(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	for _, name := range takesBack {
		rig.Grant(t, admin, "+@all", "-"+name)
		tr, err := luatx.New(client, luatx.Config{Namespace: "n"})
		redistest.Must(t, err)
		_, err = tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return tx.Pipeline().Set(t.Context(), "{a}", "v", 0).Err()
		})
		var refused *luatx.RefusedError
		if !errors.As(err, &refused) || !strings.HasSuffix(refused.Text, ": "+name) || !strings.Contains(refused.Remedy, "+"+strings.ToLower(name)) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if state, err := redistest.Dump(t.Context(), admin); err != nil || len(state.Keys) > 0 {
		t.Errorf("the check left %v, %v", state.Keys, err)
	}
}

func TestWritesThatNeedRestoreAreRefusedWithoutTheRight(t *testing.T) {
	t.Parallel()
	for _, right := range []string{"-dump", "-restore", "-@dangerous"} {
		client, admin := rig.NewUser(t, "+@all", right, "+info")
		log := &rig.Lines{}
		tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		assert.Equal(t, strings.Count(log.String(), "RESTORE"), 1, "%s: warnings of RESTORE in %q", right, log)
		testWithoutRestore(t, right, admin, tr)
		if rig.Calls(t, admin, "hsetnx") == 0 { // it marks the first write of a shard
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
		"ZPOPMIN K:z;SET K:new v", "SADD K:new" + strings.Repeat(" m", 300) + ";DEL K:h;SET K:new v",
	} {
		count := rig.Calls(t, admin, "hsetnx")
		_, err := rig.Transact(t, tr, k, c)
		var failed *luatx.CommandError
		if !errors.As(err, &failed) || !strings.Contains(failed.Text, "cannot be undone on this server") || !strings.Contains(failed.Text, "+restore") {
			t.Errorf("%s, %s: %v", right, c, err)
		}
		assert.Equal(t, rig.Calls(t, admin, "hsetnx"), count, "%s, %s: changes before the refusal", right, c)
	}
	count := rig.Calls(t, admin, "hsetnx")
	_, err := rig.Transact(t, tr, k, "XADD K:new * f v;XADD K:l * f v;XADD K:new * f v")
	if failed, ok := errors.AsType[*luatx.CommandError](err); !ok || failed.Index != 1 || !strings.Contains(failed.Text, "WRONGTYPE") {
		t.Errorf("%s, a list among streams: %v", right, err)
	}
	assert.Equal(t, rig.Calls(t, admin, "hsetnx"), count, "%s, a list among streams: changes before the refusal", right)
	_, err = tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
		tx.Pipeline().Del(t.Context(), k+":h")
		tx.Pipeline().Set(t.Context(), k+":new", "v", 0)
		return rig.Emit(tx)
	})
	assert.ErrorContains(t, err, "cannot be undone on this server", "%s, with an event", right)
	assert.Equal(t, rig.Calls(t, admin, "hsetnx"), count, "%s, with an event: changes before the refusal", right)
	rig.NoTrace(t, admin, tr, before)
	for _, c := range []string{ // can be undone without it
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
	assert.NoError(t, assert.ErrOf(rig.Transact(t, tr, k, "SET K:new v;LPOP K:l")), "%s: as the last command", right)
}

func TestRightThatTheRefusalLacksIsNoErrorOfACommand(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all", "-restore")
	tr := rig.NewTransactor(t, client)
	rig.Grant(t, admin, "-type") // after the check
	k := rig.Key(t, tr, "a", "k")
	_, err := rig.Transact(t, tr, k, "DEL K;SET K v")
	if _, ok := errors.AsType[*luatx.RefusedError](err); !ok {
		t.Errorf("error %v", err)
	}
}

func TestUndoKeepsToTheCap(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all", "-memory")
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.UndoBytes = 100 })
	k := rig.Key(t, tr, "a", "k")
	long := ""
	for len(long) < 200 { // of random letters, because DUMP compresses
		long += rand.Text()
	}
	rig.Run(t, admin, k, "SET K "+long+";HSET K:h f "+long+" g v;RPUSH K:l "+long+";SET K:fits "+long[:100]+";HSET K:hfits f "+long[:100])
	before := rig.Dump(t, admin, tr)
	for commands, refused := range map[string]bool{
		"APPEND K y":                 true,
		"SET K y":                    true,
		"MSET K:new y K y":           true,
		"INCR K":                     true,
		"HSET K:h f w":               true,
		"HDEL K:h f g":               true,
		"HSET K:h g w":               false,
		"HSET K:hfits f w":           false,
		"LPOP K:l":                   true,
		"LPUSH K:l y":                false,
		"APPEND K:fits y":            false,
		"DEL K:l":                    true,
		"XADD K:new * f " + long:     false,
		"SET K:new " + long:          false,
		"SADD K:new " + long:         false,
		"EXPIRE K 100;PERSIST K":     false,
		"EXPIRE K 1":                 true, // it may be over before the undo
		"PEXPIRE K 600":              true,
		"PEXPIRE K 1001":             false,
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

func TestCommandThatIsRefusedForItsUndoIsNotUndone(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all", "-memory")
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.UndoBytes = 100 })
	k := rig.Key(t, tr, "a", "k")
	long := rand.Text() + rand.Text() + rand.Text() + rand.Text() // of random letters, because DUMP compresses
	rig.Run(t, admin, k, "SET K "+long+";HSET K:h f "+long+" g v;PEXPIRE K:h 100000000;SADD K:small a")
	before := rig.Dump(t, admin, tr)
	for commands, denied := range map[string]string{
		"HDEL K:h f":      "pexpireat",
		"DEL K:small K:h": "restore",
	} {
		rig.Grant(t, admin, "+@all", "-memory", "-"+denied) // after the check
		_, err := rig.Transact(t, tr, k, commands+";LPUSH K wrong")
		if failed, ok := errors.AsType[*luatx.CommandError](err); !ok || !strings.Contains(failed.Text, "more than 100 bytes") {
			t.Errorf("%s: %v", commands, err)
		}
		rig.NoTrace(t, admin, tr, before)
	}
}

func TestCommandWithTheMostExpensiveUndoRunsLast(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	long := strings.Repeat("x", 200)
	for commands, want := range map[string]struct {
		index int // of the failing command
		text  string
	}{
		"SET K y;INCR K:n":                      {-1, ""},
		"HSET K:h f y g y h y;SET K:s y":        {-1, ""},
		"INCR K:n;SET K y;HSET K:h g y h y i y": {1, "more than 100 bytes"}, // the undo of HSET is larger
		"SET K y;INCR K:n;STRLEN K":             {0, "more than 100 bytes"},
		"SET K y;LPUSH K:l x":                   {0, "more than 100 bytes"}, // only some commands change order
		"SET K y;INCR K:n;APPEND K z":           {0, "more than 100 bytes"},
		"SET K y;PFCOUNT K:none K":              {0, "more than 100 bytes"}, // it reads both
		"SET K y;INCR K:h":                      {1, "WRONGTYPE"},
		"INCR K:n;HSET K f y;INCR K:m":          {1, "WRONGTYPE"},
		"HSET K:new f y g y;SET K y":            {-1, ""}, // of equal ones the last stays
		"SET K y;HSET K:new f y g y":            {0, "more than 100 bytes"},
		"SET K y;APPEND K z;INCR K:n":           {0, "more than 100 bytes"},
		"SET K y;LPUSH K:l x;INCR K:n":          {0, "more than 100 bytes"},
	} {
		t.Run(commands, func(t *testing.T) {
			t.Parallel()
			tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.UndoBytes = 100 })
			k := rig.Key(t, tr, "a", "k")
			rig.Run(t, client, k, "SET K "+long+";HSET K:h f "+long)
			before := rig.Dump(t, client, tr)
			_, err := rig.Transact(t, tr, k, commands)
			if want.text == "" {
				redistest.Must(t, err)
				return
			}
			failed, ok := errors.AsType[*luatx.CommandError](err)
			words := strings.Fields(strings.Split(commands, ";")[want.index])
			if !ok || failed.Index != want.index || !strings.EqualFold(failed.Command, words[0]) || !strings.Contains(failed.Text, want.text) {
				t.Errorf("%v", err)
			}
			rig.NoTrace(t, client, tr, before)
		})
	}
}

func TestEachCommandHasItsOwnReplyWhateverRunsLast(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(t), t.Context()
	tr := rig.NewTransactor(t, client)
	var fields, size, n *redis.IntCmd
	_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		p := tx.Pipeline()
		size = p.Append(ctx, rig.Key(t, tr, "a", "text"), "seven c")
		fields = p.HSet(ctx, rig.Key(t, tr, "a", "hash"), "f", "v", "g", "v", "h", "v")
		n = p.Incr(ctx, rig.Key(t, tr, "a", "number"))
		return nil
	}, luatx.WithID("1"))
	if err != nil || size.Val() != 7 || fields.Val() != 3 || n.Val() != 1 {
		t.Errorf("%v, %v, %v, %v", size, fields, n, err)
	}
}

func TestUndoDoesNotTakeAnEmptyStringForAMissingKey(t *testing.T) {
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

func TestUndoKeepsAnExpiryWithinTheMillisecond(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	k := rig.Key(t, tr, "a", "k")
	redistest.Must(t, client.Set(t.Context(), k, "v", 0).Err())
	server.SetTime(time.Now()) // so that the key does not expire meanwhile
	server.SetTTL(k, time.Millisecond/2)
	if _, err := rig.Transact(t, tr, k, "SET K w;LPUSH K wrong"); err == nil {
		t.Error("no error")
	}
	got, err := server.Get(k)
	if err != nil || got != "v" || server.TTL(k) <= 0 {
		t.Errorf("%q, which expires in %v; %v", got, server.TTL(k), err)
	}
}

// TestUndoRestoresAsManyValuesAsACommandAccepts matters because Lua cannot unpack twice as many at once.
func TestUndoRestoresAsManyValuesAsACommandAccepts(t *testing.T) {
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

func TestWriteWhoseOldValueMayNotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	tr := rig.NewTransactor(t, client)
	k := rig.Key(t, tr, "a", "k")
	rig.Run(t, admin, k, "SET K:s v;HSET K:h f v;SADD K:set a;ZADD K:z 1 a;RPUSH K:l a;SET K v")
	before := rig.Dump(t, admin, tr)
	for read, command := range map[string]string{
		"getrange": "SET K:s w", "hmget": "HSET K:h f w", "sismember": "SADD K:set b", "zscore": "ZADD K:z 2 a", "llen": "LPUSH K:l b",
	} {
		rig.Grant(t, admin, "+@all", "-"+read) // after the check
		_, err := rig.Transact(t, tr, k, command+";LPUSH K wrong")
		assert.ErrorContains(t, err, "docs/acl.md", "without %s", read)
		rig.NoTrace(t, admin, tr, before)
	}
}

func TestCounterWhoseLargeValueMayNotBeReadCountsOnce(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all", "-get")
	tr := rig.NewTransactor(t, client)
	k := rig.Key(t, tr, "a", "k")
	rig.Run(t, admin, k, "SET K:n 9007199254740992")
	assert.NoError(t, assert.ErrOf(rig.Transact(t, tr, k, "INCR K:n")), "alone")
	assert.NoError(t, assert.ErrOf(rig.Transact(t, tr, k, "INCR K:n;SADD K:a 1")), "in front of another")
	assert.Equal(t, admin.Get(t.Context(), k+":n").Val(), "9007199254740994", "the counter")
}

func TestEachTransactionOfAScriptHasAnUndoOfItsOwn(t *testing.T) {
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
	redistest.Must(t, err)
	for i, want := range []commit.State{commit.Committed, commit.Committed, commit.Failed, commit.Committed} {
		assert.Equal(t, outcomes[i].State, want, "transaction %d: %+v", i, outcomes[i])
	}
	assert.Equal(t, client.Get(ctx, k+"3").Val(), "kept", "the neighbour's string")
	assert.Equal(t, client.LLen(ctx, k).Val(), 2, "values that were pushed")
}

func TestMain(m *testing.M) { redistest.Main(m) }
