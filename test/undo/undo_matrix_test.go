package undo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
)

// kinds are the keys, K, that a failed transaction has changed, and commands that change them in many ways. A kind
// is left out on servers that lack the command it needs.
var kinds = map[string]struct{ setup, commands, needs string }{
	"none":                                {"", "SET K v;APPEND K w;DEL K;HSET K f 1;XADD K:new * f v;SADD K:set a;DEL K;RPUSH K a b", ""},
	"string":                              {"SET K text", "APPEND K x;SETRANGE K 2 yy;GETSET K z;SETBIT K 7 1;EXPIRE K 500;PERSIST K;RENAME K K:new;SET K v EX 5", ""},
	"int":                                 {"SET K 10", "INCR K;DECRBY K 3;INCRBYFLOAT K 0.5;SETNX K v;MSET K 1 K:new 2;BITFIELD K SET u8 0 7;EXPIRE K -1;INCR K", ""},
	"hash":                                {"HSET K f text g 5", "HSET K f new n 1;HINCRBY K g 2;HDEL K f g n;HSETNX K f w;DEL K;SET K string", ""},
	"list":                                {"RPUSH K a b c", "LPUSH K x;RPOP K;LREM K 0 a;LSET K 0 y;RPOPLPUSH K K:new;LTRIM K 1 0;RPUSH K z;EXPIRE K 500", ""},
	"set":                                 {"SADD K a b c 1", "SADD K d;SREM K a b;SMOVE K K:new c;SPOP K 5;SADD K x;SUNIONSTORE K:2 K K:new;EXPIRE K 500", ""},
	"zset":                                {"ZADD K 1 a 2.5 b inf c", "ZADD K CH 3 a 4 d;ZINCRBY K 2 b;ZREM K a c;ZPOPMIN K;ZADD K NX 1 e;ZUNIONSTORE K:new 1 K;ZREMRANGEBYRANK K 0 -1", ""},
	"geo":                                 {"GEOADD K 13.361389 38.115556 p", "GEOADD K 15 37 p 15.2 37.1 q;ZREM K p;GEORADIUS K 15 37 100 km STORE K:new", ""},
	"stream":                              {group, "XADD K 9-1 f w;XACK K g 5-1;XDEL K 6-1;XGROUP CREATE K h 0;XREADGROUP GROUP g d STREAMS K >;XCLAIM K g d 0 5-1;XSETID K 9-9;XADD K * f w;XTRIM K MAXLEN 0;XGROUP DESTROY K g;XADD K * f y", ""},
	"hll":                                 {"PFADD K a b c", "PFADD K d e;PFMERGE K:new K;APPEND K x;PERSIST K", ""},
	"expiring":                            {"HSET K f text g 5;HPEXPIRE K 100000 FIELDS 1 f", "HSET K f new;HDEL K f;HINCRBY K g 1;HPERSIST K FIELDS 1 g;HDEL K g;HSET K f v", ""},
	"two types":                           {"SET K text;HSET K:2 f v;RPUSH K:3 a", "RENAME K:2 K;SET K:3 v;DEL K K:2;BITOP NOT K:2 K:3;SORT K:none STORE K:3;HSET K:3 f v", ""},
	"text, set and deleted by conditions": {"SET K text", "SET K v IFNE other;SET K w IFEQ v;DELEX K IFEQ other;DELEX K IFEQ w;SET K x;DELEX K IFDNE 0123456789abcdef;HSET K f v;DELEX K", "DELEX"},
	"text, deleted if equal":              {"SET K text", "DELIFEQ K other;SET K v IFEQ text;DELIFEQ K v;SET K w;DELIFEQ K w", "DELIFEQ"},
	"texts, set with an expiry":           {"SET K a;SET K:2 b PX 100000", "MSETEX 3 K x K:2 y K:new z EX 50;MSETEX 2 K x K:none y NX;MSETEX 2 K v K:2 w KEEPTTL;MSETEX 1 K:h v;DEL K", "MSETEX"},
	"other types, set with an expiry":     {"HSET K f v;RPUSH K:2 a b;ZADD K:h 1 m", "MSETEX 4 K x K:2 y K:h z K:new v;MSETEX 2 K v K:2 w XX PX 50000;MSETEX 1 K:new v", "MSETEX"},
	"fields, set and deleted":             {"HSET K f text g 5;HPEXPIRE K 100000 FIELDS 1 f", "HSETEX K FNX EX 50 FIELDS 1 new v;HSETEX K FXX KEEPTTL FIELDS 1 f x;HGETEX K PERSIST FIELDS 1 f;HSETEX K PX 70000 FIELDS 2 f y g z;HGETDEL K FIELDS 3 f g new", "HGETDEL"},
	"hash, set by conditions":             {"HSET K f text", "HSETEX K XX EX 50 FIELDS 1 f x;HSETEX K NX FIELDS 1 f y;HSETEX K:new NX FIELDS 1 f y;HSETEX K:new XX FIELDS 1 g y", "CLUSTERSCAN"},
	"idempotent stream":                   {group + ";XCFGSET K IDMP-MAXSIZE 7;XADD K IDMP p i * f v", "XADD K IDMP p i * f w;XADD K IDMP p j * f w;XADD K IDMPAUTO q * f w;XCFGSET K IDMP-DURATION 50;XTRIM K MAXLEN 1;XADD K:new IDMP p i * f v;XCFGSET K:new IDMP-MAXSIZE 3", "XCFGSET"},
	"stream, deleted by reference":        {group, "XACKDEL K g ACKED IDS 2 5-1 6-1;XADD K DELREF MAXLEN 5 9-1 f v;XREADGROUP GROUP g d CLAIM 0 STREAMS K >;XDELEX K DELREF IDS 2 6-1 9-1;XDELEX K ACKED IDS 1 9-1;XADD K * f y", "XCFGSET"},
}

const group = "XADD K 5-1 f v;XADD K 6-1 f v;XADD K 7-1 f v;XDEL K 7-1;XGROUP CREATE K g 0;XREADGROUP GROUP g c COUNT 1 STREAMS K >"

type failure struct{ setup, command, says string }

// failures provoke every error that a command may still raise when its form is right, on keys of their own, and the
// text that it raises.
var failures = []failure{
	{"SET K:e text", "INCR K:e", "not an integer"},
	{"SET K:e text", "INCRBYFLOAT K:e 1", "not a valid float"},
	{"SET K:e 9223372036854775807", "INCR K:e", "overflow"},
	{"SET K:e -9223372036854775808", "DECRBY K:e 1", "overflow"},
	{"SET K:e 1", "INCRBYFLOAT K:e inf", "NaN or Infinity"},
	{"ZADD K:e inf m", "ZINCRBY K:e -inf m", "NaN"},
	{"HSET K:e f text", "HINCRBY K:e f 1", "not an integer"},
	{"HSET K:e f text", "HINCRBYFLOAT K:e f 1", "not a float"},
	{"", "SET K:e v EX 0", "invalid expire"},
	{"", "SETEX K:e -1 v", "invalid expire"},
	{"SET K:e v", "SETRANGE K:e -1 x", "out of range"},
	{"SET K:e v", "SETRANGE K:e 536870912 x", "maximum"},
	{"SET K:e v", "SETBIT K:e 4294967296 1", "out of range"},
	{"SET K:e v", "BITFIELD K:e SET u64 0 1", "bitfield"},
	{"RPUSH K:e a", "LSET K:e 5 x", "out of range"},
	{"", "LSET K:e 0 x", "no such key"},
	{"", "RENAME K:e K:f", "no such key"},
	{"SET K:e text", "PFADD K:e a", "HyperLogLog"},
	{"XADD K:e 5-1 f v", "XADD K:e 5-1 f v", "equal or smaller"},
	{"", "XADD K:e 0-0 f v", "greater than 0-0"},
	{"XADD K:e 5-1 f v", "XDEL K:e text", "Invalid stream ID"},
	{"XADD K:e 5-1 f v", "XREADGROUP GROUP no c STREAMS K:e >", "NOGROUP"},
	{"XADD K:e 5-1 f v", "XGROUP SETID K:e no 0", "NOGROUP"},
	{"XADD K:e 5-1 f v;XGROUP CREATE K:e g 0", "XGROUP CREATE K:e g 0", "BUSYGROUP"},
	{"", "XGROUP CREATE K:e g 0", "requires the key to exist"},
	{"SET K:e v", "RESTORE K:e 0 payload", "BUSYKEY"},
	{"", "RESTORE K:e 0 payload", "payload"},
	{"RPUSH K:e text", "SORT K:e STORE K:f", "double"},
	{"SET K:e v", "LPUSH K:e x", "WRONGTYPE"},
	{"SET K:e v", "XADD K:e * f v", "WRONGTYPE"},
	{"RPUSH K:e a", "SMOVE K:e K:f a", "WRONGTYPE"},
	{"", "CALL spoil K K:e", "nil"},
	{"", "CALL refuse K K:e", "refused by itself"},
	{"SET K:e v", "CALL wrong K K:e", "WRONGTYPE"},
}

// spoilers are procedures that fail after they have written.
var spoilers = []luatx.Procedure{
	{Name: "spoil", Source: `redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], 'x') redis.call('HSET', KEYS[2], 'f', 'v') return nil .. 'a'`},
	{Name: "refuse", Source: `redis.call('DEL', KEYS[1], KEYS[2]) redis.call('RPUSH', KEYS[1], 'x') emit('{}', 'spoiled') error('refused by itself')`},
	{Name: "wrong", Source: `redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], 1, 'x') return redis.call('SADD', KEYS[2], 'x')`},
}

// TestUndoMatrix holds for each kind of key, with and without an expiry, each error that a command can raise, and each
// place where it can stand, that a failed transaction leaves nothing behind: not on its keys, no mark, no event.
func TestUndoMatrix(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t).Client(t)
	failures := failures
	if rig.Knows(t, client, "EXPIRETIME") { // 7.0
		failures = append(slices.Clip(failures), failure{"SET K:e v", "EXPIRE K:e 9223372036854775807", "invalid expire"})
	}
	for kind, c := range kinds {
		if c.needs != "" && !rig.Knows(t, client, c.needs) {
			continue
		}
		for _, expiry := range []string{"", ";PEXPIRE K 100000"} {
			if expiry != "" && c.setup == "" {
				continue
			}
			t.Run(kind+expiry, func(t *testing.T) {
				t.Parallel()
				m := newMatrix(t, client)
				for i, f := range failures {
					for _, place := range []int{0, len(strings.Split(c.commands, ";")) / 2, -1} {
						m.row(fmt.Sprint("k", i), c.setup+expiry, c.commands, f.setup, f.command, f.says, place)
					}
				}
			})
		}
	}
}

// matrix is a shard with something in it, and rows of transactions that must leave it as it is.
type matrix struct {
	t      *testing.T
	client redis.UniversalClient
	tr     *luatx.Transactor
}

func newMatrix(t *testing.T, client redis.UniversalClient) *matrix {
	t.Helper()
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Procedures = append(slices.Clip(spoilers), through) })
	m := &matrix{t, client, tr}
	if _, err := tr.Transact(t.Context(), "a", func(tx *luatx.Tx) error { return tx.Emit(luatx.Event{Body: []byte("{}")}) }, luatx.WithID("before")); err != nil {
		t.Fatal(err)
	}
	return m
}

// row puts a failing command among others, at a place (-1: the end), and looks whether anything is left.
func (m *matrix) row(name, setup, commands, failSetup, failing, says string, place int) {
	m.t.Helper()
	k := m.setUp(name, setup+";"+failSetup)
	if k == "" {
		return
	}
	lines := strings.Split(commands, ";")
	if place < 0 {
		place = len(lines)
	}
	lines = slices.Insert(lines, place, failing)
	before := rig.Dump(m.t, m.client, m.tr)
	err := m.transact(k, lines)
	var failed *luatx.CommandError
	if !errors.As(err, &failed) || failed.Index != place || !strings.Contains(failed.Text, says) {
		m.t.Errorf("%q: %v", lines, err)
	}
	after := rig.Dump(m.t, m.client, m.tr)
	if diff := redistest.Diff(before, after); diff != "" {
		m.t.Errorf("%q left a trace:\n%s", lines, diff)
	}
	m.clean(after, k)
}

// setUp runs commands on keys that begin with a name, and returns the key that K stands for; "" if the server is too old.
func (m *matrix) setUp(name, setup string) string {
	m.t.Helper()
	k := rig.Key(m.t, m.tr, "a", name)
	for line := range strings.SplitSeq(setup, ";") {
		if line == "" {
			continue
		}
		if err := m.client.Do(m.t.Context(), rig.Words(line, k)...).Err(); err != nil {
			if strings.Contains(err.Error(), "unknown command") {
				return ""
			}
			m.t.Fatalf("%s: %v", line, err)
		}
	}
	return k
}

// clean deletes the keys that begin with k.
func (m *matrix) clean(state redistest.State, k string) {
	m.t.Helper()
	for name := range state.Keys {
		if strings.HasPrefix(name, k) {
			m.client.Del(m.t.Context(), name)
		}
	}
}

// words is like the function, and puts what RESTORE takes of the key K:2 in the place of PAYLOAD.
func (m *matrix) words(line, k string) []any {
	m.t.Helper()
	args := rig.Words(line, k)
	if i := slices.Index(args, any("PAYLOAD")); i >= 0 {
		payload, err := m.client.Dump(m.t.Context(), k+":2").Result()
		if err != nil {
			m.t.Fatal(err)
		}
		args[i] = payload
	}
	return args
}

func (m *matrix) transact(k string, lines []string) error {
	ctx := context.Background()
	_, err := m.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		if err := tx.Emit(luatx.Event{Body: []byte(`{"n":1}`)}); err != nil {
			return err
		}
		for _, line := range lines {
			record(ctx, tx, m.words(line, k), k)
		}
		return nil
	}, luatx.WithID("matrix"))
	return err
}

// record records a command, the call of a procedure with two keys, or the call of a procedure that runs a command on keys
// that begin with k.
func record(ctx context.Context, tx *luatx.Tx, args []any, k string) {
	switch args[0] {
	case "CALL":
		tx.Call(args[1].(string), []string{args[2].(string), args[3].(string)})
	case "THROUGH":
		var keys []string
		for _, arg := range args {
			if name := arg.(string); strings.HasPrefix(name, k) && !slices.Contains(keys, name) {
				keys = append(keys, name)
			}
		}
		tx.Call(through.Name, keys, args[1:]...)
	default:
		tx.Pipeline().Do(ctx, args...)
	}
}
