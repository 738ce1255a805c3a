package undo_test

import (
	"errors"
	"slices"
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

// undone are commands that are followed by one that fails: what they did must be gone. K stands for the key.
// What Redis 6.0 does not know is in newer.
var undone = []struct{ setup, commands string }{
	{"", "SET K v"},
	{"SET K old", "SET K v"},
	{"SET K old PX 100000", "SET K v"},
	{"SET K old", "SET K v EX 100"},
	{"HSET K f v", "SET K v"},
	{"RPUSH K a b", "SETEX K 10 v"},
	{"SET K old PX 100000", "GETSET K v"},
	{"SET K old", "SETNX K v"},
	{"", "SETNX K v"},
	{"SET K:1 old", "MSET K:1 a K:2 b"},
	{"", "MSETNX K:1 a K:2 b"},
	{"SET K old PX 100000", "APPEND K more"},
	{"", "APPEND K more"},
	{"SET K old", "SETRANGE K 5 x"},
	{"SET K old PX 100000", "SETBIT K 100 1"},
	{"SET K 10 PX 100000", "INCR K"},
	{"SET K 10", "DECRBY K 3"},
	{"", "INCRBY K 3"},
	{"SET K 1.5", "INCRBYFLOAT K 0.25"},
	{"HSET K f 1 g 2", "HSET K f 3 h 4"},
	{"", "HSET K f 3 h 4"},
	{"HSET K f 1|PEXPIRE K 100000", "HDEL K f nosuch"},
	{"HSET K f 1 g 2", "HDEL K f"},
	{"HSET K f 1", "HSETNX K f 2;HSETNX K g 2"},
	{"HSET K f 1", "HINCRBY K f 4;HINCRBYFLOAT K g 1.5"},
	{"SADD K a b", "SADD K b c c"},
	{"SADD K a|PEXPIRE K 100000", "SREM K a nosuch"},
	{"SADD K a b c", "SPOP K 2"},
	{"SADD K:1 a b", "SMOVE K:1 K:2 a"},
	{"SADD K:1 a b|SADD K:2 b", "SUNIONSTORE K:3 K:1 K:2;SINTERSTORE K:1 K:2 K:3"},
	{"ZADD K 1.5 a 2 b", "ZADD K 3 a 4 c"},
	{"ZADD K 1 a", "ZADD K NX CH 3 a 4 c"},
	{"ZADD K inf a -inf b", "ZADD K 1 a 2 b"},
	{"ZADD K 0.1 a", "ZINCRBY K 0.2 a;ZINCRBY K 1 b"},
	{"ZADD K 1 a|PEXPIRE K 100000", "ZREM K a nosuch"},
	{"ZADD K 1 a 2 b 3 c", "ZPOPMIN K;ZREMRANGEBYRANK K 0 0"},
	{"RPUSH K a b", "LPUSH K c d;RPUSH K e"},
	{"", "LPUSH K c d"},
	{"", "RPUSHX K c"},
	{"RPUSH K a b c b|PEXPIRE K 100000", "LPOP K;RPOP K;LREM K 1 b"},
	{"RPUSH K a b c", "LSET K 1 x;LINSERT K BEFORE a y;LTRIM K 1 2"},
	{"RPUSH K:1 a b", "RPOPLPUSH K:1 K:2"},
	{"XADD K 5-1 f v|XGROUP CREATE K g 0|XREADGROUP GROUP g c STREAMS K >", "XADD K 9-1 f w"},
	{"", "XADD K 9-1 f w"},
	{"XADD K 5-1 f v|XADD K 6-1 f v|XGROUP CREATE K g 0|XREADGROUP GROUP g c STREAMS K >", "XDEL K 5-1;XTRIM K MAXLEN 0"},
	{"SET K v", "EXPIRE K 100"},
	{"SET K v PX 100000", "EXPIRE K 500;PERSIST K"},
	{"SET K v", "PEXPIREAT K 1"},
	{"HSET K f v", "EXPIRE K -1"},
	{"SET K:1 a PX 100000|HSET K:2 f v", "DEL K:1 K:2 K:3"},
	{"ZADD K 1 a", "UNLINK K"},
	{"SET K:1 a|HSET K:2 f v", "RENAME K:1 K:2"},
	{"SET K:1 a", "RENAMENX K:1 K:2"},
	{"PFADD K a b", "PFADD K c"},
	{"SET K a", "DEL K;HSET K f v;EXPIRE K 100"},
	{"HSET K f a", "DEL K;SET K v;DEL K;LPUSH K a"},
	{"HSET K f a", "DEL K;ZADD K 1 a;SET K v"},
	{"SET K a", "DEL K;HSET K f v;DEL K;SET K v"},
	{"HSET K f a", "DEL K;ZADD K 1 a;MSET K v K:2 w;XADD K:3 * f v"},
}

// expiring are such commands on hashes whose fields expire, of Redis 7.4 and later.
var expiring = []struct{ setup, commands string }{
	{"HSET K f 1 g 2|HPEXPIRE K 100000 FIELDS 1 f", "HSET K f 3"},
	{"HSET K f 1 g 2|HPEXPIRE K 100000 FIELDS 2 f g", "HDEL K f g"},
	{"HSET K f 1 g 2|HPEXPIRE K 100000 FIELDS 1 g", "HINCRBY K f 2;HINCRBYFLOAT K g 0.5;HSETNX K h 1"},
	{"HSET K f 1|HPEXPIRE K 100000 FIELDS 1 f", "DEL K"},
}

// latest are such commands of Redis 8.4, of Redis 8.6 and of Valkey 9, by a command that the server needs.
var latest = map[string][]struct{ setup, commands string }{
	"MSETEX": {
		{"SET K:1 old PX 100000|HSET K:2 f v", "MSETEX 3 K:1 a K:2 b K:3 c EX 100"},
		{"SET K:1 old", "MSETEX 2 K:1 a K:2 b NX;MSETEX 2 K:3 a K:4 b NX KEEPTTL"},
	},
	"DELEX": {
		{"SET K old PX 100000", "DELEX K IFEQ old"},
		{"SET K old", "SET K v IFEQ old;DELEX K IFNE v;DELEX K IFEQ v"},
		{"ZADD K 1 a|PEXPIRE K 100000", "DELEX K"},
	},
	"DELIFEQ": {{"SET K old PX 100000", "DELIFEQ K old"}, {"SET K old", "DELIFEQ K other"}},
	"XCFGSET": {
		{"XADD K 5-1 f v|XGROUP CREATE K g 0|XREADGROUP GROUP g c STREAMS K >", "XACKDEL K g DELREF IDS 1 5-1"},
		{"XADD K 5-1 f v|XADD K 6-1 f v|XGROUP CREATE K g 0", "XDELEX K ACKED IDS 1 5-1;XDELEX K KEEPREF IDS 2 5-1 6-1"},
		{"XADD K IDMP p i * f v", "XCFGSET K IDMP-DURATION 7 IDMP-MAXSIZE 9;XADD K IDMP p i * f w;XADD K IDMP p j * f w"},
	},
}

// newer are such commands of Redis 6.2 and later.
var newer = []struct{ setup, commands string }{
	{"SET K old PX 100000", "GETDEL K"},
	{"SET K old PX 100000", "GETEX K PERSIST"},
	{"ZADD K 1 a", "ZADD K XX GT INCR 3 a"},
	{"RPUSH K:1 a b", "LMOVE K:1 K:2 LEFT RIGHT"},
}

func TestUndo(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx := t.Context()
	rows := undone
	if known, err := client.Do(ctx, "COMMAND", "INFO", "GETEX", "HPEXPIRE").Slice(); err == nil {
		if known[0] != nil {
			rows = slices.Concat(rows, newer)
		}
		if known[1] != nil {
			rows = slices.Concat(rows, expiring)
		}
	}
	for name, more := range latest {
		if rig.Knows(t, client, name) {
			rows = slices.Concat(rows, more)
		}
	}
	for _, c := range rows {
		t.Run(c.setup+"|"+c.commands, func(t *testing.T) {
			t.Parallel()
			tr := rig.NewTransactor(t, client)
			k := rig.Key(t, tr, "a", "k")
			for line := range strings.SplitSeq(c.setup, "|") {
				if line != "" {
					if err := client.Do(ctx, rig.Words(line, k)...).Err(); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
				}
			}
			wrong := rig.Key(t, tr, "a", "wrong")
			client.Set(ctx, wrong, "text", 0)
			before := rig.Dump(t, client, tr)
			count := 0
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				for line := range strings.SplitSeq(c.commands, ";") {
					tx.Pipeline().Do(ctx, rig.Words(line, k)...)
					count++
				}
				tx.Pipeline().HSet(ctx, wrong, "f", "v")
				return tx.Emit(luatx.Event{Body: []byte("{}")})
			}, luatx.WithID("u"))
			var failed *luatx.CommandError
			if !errors.As(err, &failed) || failed.Index != count {
				t.Errorf("error %v, want that of command %d", err, count)
			}
			rig.NoTrace(t, client, tr, before)
		})
	}
}

// TestUndoThatFails holds that an id whose undo failed is kept as broken, and says so ever after.
func TestUndoThatFails(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	ctx, tr := t.Context(), rig.NewTransactor(t, client)
	rig.Grant(t, admin, "-restore") // since the check
	k, wrong := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "wrong")
	admin.HSet(ctx, k, "f", "v")
	admin.Set(ctx, wrong, "text", 0)
	run := func() error {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Pipeline().Del(ctx, k)
			tx.Pipeline().HSet(ctx, wrong, "f", "v")
			tx.Pipeline().Set(ctx, k, "not reached", 0)
			return nil
		}, luatx.WithID("broken"))
		return err
	}
	for range 2 {
		var broken *luatx.RollbackError
		if err := run(); !errors.As(err, &broken) || !strings.Contains(broken.Text, k) || !strings.Contains(broken.Text, "WRONGTYPE") {
			t.Errorf("error %v", err)
		}
	}
}

// TestBrokenWithinABatch holds that a second copy in the batch hears what the first one left, too.
func TestBrokenWithinABatch(t *testing.T) {
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
	if err != nil {
		t.Fatal(err)
	}
	for i, out := range outcomes {
		if out.State != commit.Broken || !strings.Contains(out.Text, k) {
			t.Errorf("transaction %d: %+v", i, out)
		}
	}
}

// TestUndoOnMiniredis holds that what miniredis cannot undo is refused, and undone as far as it came.
func TestUndoOnMiniredis(t *testing.T) {
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

// TestUndoOfALargeKeyIsRefused holds the cap on what is copied, and that the last command needs no copy.
func TestUndoOfALargeKeyIsRefused(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx, tr := t.Context(), rig.NewTransactor(t, client, func(c *luatx.Config) { c.UndoBytes = 1000 })
	k := rig.Key(t, tr, "a", "k")
	client.RPush(ctx, k, strings.Repeat("x", 5000))
	run := func(last bool) error {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			tx.Pipeline().Set(ctx, k+"2", "v", 0)
			tx.Pipeline().LPop(ctx, k)
			if !last {
				tx.Pipeline().Set(ctx, k+"3", "v", 0)
			}
			return nil
		})
		return err
	}
	before := rig.Dump(t, client, tr)
	if err := run(false); err == nil || !strings.Contains(err.Error(), "more than 1000 bytes") {
		t.Errorf("in the middle: %v", err)
	}
	rig.NoTrace(t, client, tr, before)
	if err := run(true); err != nil {
		t.Errorf("as the last command: %v", err)
	}
}
