package undo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// kinds lists the keys, K, that a failed transaction has changed, and commands that change them in many ways. Servers that
// lack the needed command skip a kind.
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
	"text, deleted and made anew":         {"SET K text", "DEL K;HSET K f v;EXPIRE K 100;DEL K;SET K v;GETSET K w", ""},
	"hash, deleted and made anew":         {"HSET K f text", "SETEX K 10 v;DEL K;LPUSH K a;DEL K;ZADD K 1 a;MSET K v K:2 w;XADD K:3 * f v", ""},
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

// failures provoke every error that a valid command may still raise, on keys of their own, with the text of the error.
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
	{"", "THROUGH ZADD K:e NX CH", "syntax error"},
	{"SET K:e v", "THROUGH EXPIRE K:e text", "not an integer"},
}

// spoilers are procedures that fail after they have written.
var spoilers = []luatx.Procedure{
	{Name: "spoil", Source: `redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], 'x') redis.call('HSET', KEYS[2], 'f', 'v') return nil .. 'a'`},
	{Name: "refuse", Source: `redis.call('DEL', KEYS[1], KEYS[2]) redis.call('RPUSH', KEYS[1], 'x') emit('{}', 'spoiled') error('refused by itself')`},
	{Name: "wrong", Source: `redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], 1, 'x') return redis.call('SADD', KEYS[2], 'x')`},
}

func TestFailedTransactionLeavesNothingWhereverItFails(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t).Client(t)
	failures := failures
	if rig.Knows(t, client, "EXPIRETIME") { // since Redis 7.0
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

// matrix is a shard with data, and rows of transactions that must leave it unchanged.
type matrix struct {
	t      *testing.T
	client redis.UniversalClient
	tr     *luatx.Transactor
}

func newMatrix(t *testing.T, client redis.UniversalClient) *matrix {
	t.Helper()
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Procedures = append(slices.Clip(spoilers), through) })
	m := &matrix{t, client, tr}
	redistest.Must(t, assert.ErrOf(tr.Transact(t.Context(), "a", rig.Emit, luatx.WithID("before"))))
	return m
}

// row puts a failing command among others, at an index or, for -1, at the end, and checks that nothing is left.
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

// setUp runs commands on keys that begin with a name, and returns the key for which K stands. It returns "" if the server
// is too old.
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

// words is like the function rig.Words, but replaces PAYLOAD by a dump of the key K:2 for RESTORE, and AGO and AGOMS by the time an
// hour ago, in seconds and milliseconds.
func (m *matrix) words(line, k string) []any {
	m.t.Helper()
	args := rig.Words(line, k)
	if i := slices.Index(args, any("PAYLOAD")); i >= 0 {
		payload, err := m.client.Dump(m.t.Context(), k+":2").Result()
		redistest.Must(m.t, err)
		args[i] = payload
	}
	ago := time.Now().Add(-time.Hour)
	for i, arg := range args {
		switch arg {
		case "AGO":
			args[i] = strconv.FormatInt(ago.Unix(), 10)
		case "AGOMS":
			args[i] = strconv.FormatInt(ago.UnixMilli(), 10)
		}
	}
	return args
}

func (m *matrix) transact(k string, lines []string) error {
	ctx := context.Background()
	return assert.ErrOf(m.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		if err := tx.Emit(luatx.Event{Body: []byte(`{"n":1}`)}); err != nil {
			return err
		}
		for _, line := range lines {
			record(ctx, tx, m.words(line, k), k)
		}
		return nil
	}, luatx.WithID("matrix")))
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

// options lists commands with each of their options, by the keys that they change and a command that their server version
// needs. A ? precedes commands that may change nothing on some servers.
//
//nolint:dupword // they are commands on one key twice
var options = []struct{ needs, setup, commands string }{
	{"GET", "SET K text;SET K:2 other", "SET K v EX 50;SET K v PX 50000;SET K v KEEPTTL;SET K v XX;set K v xx ex 50;SET K:new v NX;SET K:new v NX EX 50;" +
		"SETEX K 50 v;PSETEX K 50000 v;SETNX K:new v;GETSET K v;APPEND K v;APPEND K:new v;INCR K:new;DECRBY K:new 3;INCRBYFLOAT K:new 0.5;MSET K v K:new w;MSETNX K:new v K:other w;SETRANGE K 9 x;SETBIT K 70 1;" +
		"BITFIELD K OVERFLOW WRAP INCRBY u8 0 200;BITFIELD K OVERFLOW SAT INCRBY u8 0 200;BITFIELD K OVERFLOW FAIL INCRBY u8 8 1;BITFIELD K SET i5 #2 7 GET u4 0;" +
		"BITOP AND K:new K K:2;BITOP OR K K K:2;BITOP XOR K:2 K K:2;BITOP NOT K K;RENAME K K:2;RENAMENX K K:new;" +
		"RESTORE K 0 PAYLOAD REPLACE;RESTORE K:new 50000 PAYLOAD;RESTORE K 9999999999999 PAYLOAD REPLACE ABSTTL;RESTORE K 0 PAYLOAD REPLACE IDLETIME 5;" +
		"EXPIRE K 50;PEXPIRE K 50000;EXPIREAT K 9999999999;PEXPIREAT K 9999999999999;EXPIRE K -1;EXPIREAT K 1;EXPIREAT K AGO;PEXPIREAT K AGOMS;UNLINK K K:2 K:none;DEL K"},
	{"GETEX", "SET K text;SET K:2 other", "SET K v GET;SET K v XX GET;SET K v EXAT 9999999999;SET K v PXAT 9999999999999;GETEX K EX 50;GETEX K PX 50000;" +
		"GETEX K EXAT 9999999999;GETEX K PXAT 9999999999999;GETDEL K;COPY K K:new;COPY K K:2 REPLACE"},
	{"GETEX", "SET K text PX 100000", "GETEX K PERSIST;PERSIST K;SET K v KEEPTTL;SET K v;COPY K K:new"},
	{"EXPIRETIME", "SET K text;SET K:2 other PX 100000", "SET K:new v NX GET;EXPIRE K 500 NX;EXPIRE K:2 500 XX;EXPIRE K:2 500 GT;EXPIRE K:2 5 LT;" +
		"PEXPIRE K 500 NX;PEXPIRE K:2 500 LT;EXPIREAT K:2 9999999999 GT;PEXPIREAT K:2 9999999999999 XX;EXPIRE K:2 -1 LT;expire K:2 500 gt"},
	{"GET", "HSET K f text g 5", "HSET K f v new w;HSET K:new f v g w;HMSET K f v;HSETNX K new v;HINCRBY K g 2;HINCRBYFLOAT K g 0.5;HDEL K f;HDEL K f g;HDEL K f nosuch"},
	{"HPEXPIRE", "HSET K f text g 5;HPEXPIRE K 100000 FIELDS 1 f", "HEXPIRE K 50 FIELDS 2 f g;HEXPIRE K 50 NX FIELDS 1 g;HEXPIRE K 500 XX FIELDS 1 f;" +
		"HEXPIRE K 500 GT FIELDS 1 f;HEXPIRE K 5 LT FIELDS 1 f;HPEXPIRE K 500000 GT FIELDS 1 f;HEXPIREAT K 9999999999 XX FIELDS 1 f;" +
		"HPEXPIREAT K 9999999999999 FIELDS 1 g;HPERSIST K FIELDS 1 f;HPEXPIRE K 0 FIELDS 2 f g"},
	{"HPEXPIRE", "HSET K f 1 g 2;HPEXPIRE K 100000 FIELDS 2 f g", "HSET K f 3;HINCRBY K f 2;HINCRBYFLOAT K g 0.5;HSETNX K h 1;HDEL K f;HDEL K f g;DEL K"},
	{"GET", "RPUSH K b a c a;RPUSH K:2 x", "LPUSH K v w;RPUSH K v w;LPUSH K:new v w;RPUSH K:new v;?RPUSHX K:new v;LPUSHX K v;RPUSHX K v;LINSERT K BEFORE a v;LINSERT K AFTER a v;LSET K -1 v;LREM K 1 a;LREM K -1 a;LREM K 0 a;" +
		"LTRIM K 1 2;LTRIM K 5 9;LPOP K;RPOP K;RPOPLPUSH K K:2;RPOPLPUSH K K;" +
		"SORT K ALPHA STORE K:2;SORT K ALPHA DESC LIMIT 0 2 STORE K;SORT K ASC ALPHA STORE K:new;SORT K:none STORE K:2"},
	{"GETEX", "RPUSH K b a c a;RPUSH K:2 x", "LPOP K 2;RPOP K 9;LMOVE K K:2 LEFT LEFT;LMOVE K K:2 LEFT RIGHT;LMOVE K K:2 RIGHT LEFT;LMOVE K K:new RIGHT RIGHT;LMOVE K K LEFT RIGHT"},
	{"LMPOP", "RPUSH K b a c a;ZADD K:2 1 a 2 b 3 c", "LMPOP 2 K:none K LEFT;LMPOP 2 K:none K RIGHT COUNT 3;ZMPOP 2 K:none K:2 MIN;ZMPOP 1 K:2 MAX COUNT 9"},
	{"GET", "SADD K a b c;SADD K:2 c d", "SADD K d e;SADD K b d d;SREM K a b;SREM K a nosuch;SREM K a b c;SPOP K;SPOP K 2;SMOVE K K:2 a;SMOVE K K:new c;SINTERSTORE K K K:2;SUNIONSTORE K:2 K K:2;SDIFFSTORE K:new K K:2"},
	{"GET", "ZADD K 1 a 2.5 b inf c;ZADD K:2 7 a", "ZADD K 5 a 6 new;ZADD K NX 5 a 6 new;ZADD K XX 5 a 6 new;ZADD K CH 5 a;ZADD K XX CH 5 a;ZADD K CH NX 6 new;" +
		"ZADD K INCR 5 a;ZADD K INCR 5 new;ZADD K XX INCR 5 a;ZADD K NX INCR 5 new;zadd K xx ch 5 a;ZINCRBY K 2 b;ZREM K a c;ZREM K a b c;ZPOPMIN K;ZPOPMIN K 2;ZPOPMAX K 9;" +
		"ZREMRANGEBYRANK K 0 1;ZREMRANGEBYSCORE K (1 +inf;ZREMRANGEBYLEX K - +;ZUNIONSTORE K:2 2 K K:2 WEIGHTS 2 3 AGGREGATE MIN;ZUNIONSTORE K 2 K K:2 AGGREGATE MAX;" +
		"ZUNIONSTORE K:new 1 K WEIGHTS 2;ZINTERSTORE K 2 K K:2 WEIGHTS 2 3 AGGREGATE SUM"},
	{"GET", "ZADD K 0.1 a -inf b", "ZADD K 1 a 2 b;ZINCRBY K 0.2 a;ZINCRBY K 1 c;ZREM K a nosuch;ZREM K a b"},
	{"GETEX", "ZADD K 1 a 2.5 b inf c;ZADD K:2 7 a", "ZADD K GT 5 a 1 b;ZADD K LT -5 a 9 b;ZADD K LT -5 a 9 new;ZADD K GT CH 5 a;ZADD K LT CH -5 a;ZADD K XX GT 5 a 9 new;ZADD K XX LT CH -5 a 9 new;" +
		"ZADD K GT INCR 5 a;ZADD K LT INCR -5 a;ZADD K XX GT CH INCR 5 a;ZADD K CH LT XX INCR -5 a;zadd K lt -5 a;ZDIFFSTORE K 2 K K:2;ZRANGESTORE K:2 K 0 1 REV;ZRANGESTORE K:2 K 1 3 BYSCORE LIMIT 0 1;" +
		"ZRANGESTORE K K [a [b BYLEX;ZRANGESTORE K:new K 0 -1"},
	{"GET", "GEOADD K 13.361389 38.115556 p 15.087269 37.502669 q;ZADD K:2 7 a", "GEOADD K 15 37 p 15.2 37.1 new;GEORADIUS K 15 37 500 km STORE K:2;GEORADIUS K 15 37 500 km COUNT 1 ASC STOREDIST K:2;" +
		"GEORADIUSBYMEMBER K p 500 km DESC STORE K;GEORADIUSBYMEMBER K p 500 km STOREDIST K:new"},
	{"GETEX", "GEOADD K 13.361389 38.115556 p 15.087269 37.502669 q;ZADD K:2 7 a", "GEOADD K NX 15 37 p 15.2 37.1 new;GEOADD K XX 15 37 p 15.2 37.1 new;GEOADD K CH 15 37 p;GEOADD K XX CH 15 37 p;geoadd K nx ch 15 37 new;" +
		"GEOSEARCHSTORE K:2 K FROMMEMBER p BYRADIUS 500 km ASC COUNT 1 ANY;GEOSEARCHSTORE K:2 K FROMLONLAT 15 37 BYBOX 500 500 km STOREDIST;GEOSEARCHSTORE K K FROMMEMBER p BYRADIUS 1 km DESC"},
	{"GET", group, "XADD K 9-1 f v;XADD K * f v;XADD K MAXLEN 1 * f v;XADD K MAXLEN = 1 * f v;XADD K MAXLEN ~ 1 * f v;XADD K MAXLEN 0 9-1 f v;XADD K:new * f v;XADD K:new 9-1 f v;XDEL K 5-1 6-1;XTRIM K MAXLEN 1;XTRIM K MAXLEN = 0;?XTRIM K MAXLEN ~ 0;" +
		"XACK K g 5-1;XSETID K 9-9;XCLAIM K g d 0 5-1;XCLAIM K g d 0 5-1 JUSTID;XCLAIM K g d 0 5-1 IDLE 5000;XCLAIM K g d 0 5-1 TIME 1000;XCLAIM K g d 0 5-1 RETRYCOUNT 7;XCLAIM K g d 0 6-1 FORCE;XCLAIM K g d 0 5-1 IDLE 9 RETRYCOUNT 3 FORCE JUSTID;" +
		"XREADGROUP GROUP g d STREAMS K >;XREADGROUP GROUP g d COUNT 1 STREAMS K >;XREADGROUP GROUP g d NOACK STREAMS K >;XGROUP CREATE K h 0;XGROUP CREATE K h $;XGROUP CREATE K:new h $ MKSTREAM;XGROUP SETID K g 0;XGROUP DELCONSUMER K g c;XGROUP DESTROY K g"},
	{"GETEX", group, "XADD K NOMKSTREAM * f v;XADD K NOMKSTREAM MAXLEN 1 * f v;XADD K MINID 6-1 * f v;XADD K MINID = 6-1 * f v;XADD K MINID ~ 6-1 * f v;XADD K MAXLEN ~ 1 LIMIT 5 * f v;XTRIM K MINID 6-1;XTRIM K MINID = 6-1;?XTRIM K MINID ~ 6-1 LIMIT 5;" +
		"XAUTOCLAIM K g d 0 0;XAUTOCLAIM K g d 0 0 COUNT 1 JUSTID;XGROUP CREATECONSUMER K g d"},
	{"XCFGSET", group, "XACKDEL K g DELREF IDS 1 5-1;XDELEX K KEEPREF IDS 2 5-1 6-1;XCFGSET K IDMP-DURATION 7 IDMP-MAXSIZE 9"},
	{"EXPIRETIME", group, "XADD K 9-* f v;XGROUP CREATE K h 0 ENTRIESREAD 1;XGROUP SETID K g 0 ENTRIESREAD 1;XSETID K 9-9 ENTRIESADDED 10 MAXDELETEDID 7-1;XCLAIM K g d 0 5-1 LASTID 6-1"},
}

// through is a procedure that runs any command.
var through = luatx.Procedure{Name: "through", Source: `return redis.call(unpack(ARGV))`}

func TestEveryOptionOfACommandIsUndone(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t).Client(t)
	for i, group := range options {
		if !rig.Knows(t, client, group.needs) {
			continue
		}
		t.Run(fmt.Sprintf("%d %s", i, group.setup), func(t *testing.T) {
			t.Parallel()
			m := newMatrix(t, client)
			for n, line := range strings.Split(group.commands, ";") {
				line, optional := strings.CutPrefix(line, "?")
				name, _, _ := strings.Cut(strings.ToUpper(line), " ")
				callable := strings.Contains(command.LuaTable(), " "+name+":")
				changes := false
				for _, expiry := range []string{"", ";PEXPIRE K 100000"} {
					at := fmt.Sprint("k", n, len(expiry))
					changes = m.changes(at, group.setup+expiry, line) || changes
					m.row(at, group.setup+expiry, line, "SET K:e text", "LPUSH K:e x", "WRONGTYPE", -1)
					if callable {
						m.row(at, group.setup+expiry, "THROUGH "+line, "SET K:e text", "LPUSH K:e x", "WRONGTYPE", -1)
					}
				}
				if !changes && !optional {
					t.Errorf("%s changes nothing", line)
				}
			}
		})
	}
}

// changes reports whether a command changes anything outside a transaction.
func (m *matrix) changes(name, setup, line string) bool {
	m.t.Helper()
	k := m.setUp(name, setup)
	before := rig.Dump(m.t, m.client, m.tr)
	if err := m.client.Do(m.t.Context(), m.words(line, k)...).Err(); err != nil && err.Error() != "redis: nil" {
		m.t.Errorf("%s: %v", line, err)
	}
	after := rig.Dump(m.t, m.client, m.tr)
	m.clean(after, k)
	return redistest.Diff(before, after) != ""
}
