package undo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/test/redistest"
)

// options are commands with each of their options, by the keys that they change and a command of the server version that
// they need. Behind a ? stands one that may change nothing on some servers.
//
//nolint:dupword // they are commands on one key twice
var options = []struct{ needs, setup, commands string }{
	{"GET", "SET K text;SET K:2 other", "SET K v EX 50;SET K v PX 50000;SET K v KEEPTTL;SET K v XX;set K v xx ex 50;SET K:new v NX;SET K:new v NX EX 50;" +
		"SETEX K 50 v;PSETEX K 50000 v;SETNX K:new v;MSET K v K:new w;MSETNX K:new v K:other w;SETRANGE K 9 x;SETBIT K 70 1;" +
		"BITFIELD K OVERFLOW WRAP INCRBY u8 0 200;BITFIELD K OVERFLOW SAT INCRBY u8 0 200;BITFIELD K OVERFLOW FAIL INCRBY u8 8 1;BITFIELD K SET i5 #2 7 GET u4 0;" +
		"BITOP AND K:new K K:2;BITOP OR K K K:2;BITOP XOR K:2 K K:2;BITOP NOT K K;RENAME K K:2;RENAMENX K K:new;" +
		"RESTORE K 0 PAYLOAD REPLACE;RESTORE K:new 50000 PAYLOAD;RESTORE K 9999999999999 PAYLOAD REPLACE ABSTTL;RESTORE K 0 PAYLOAD REPLACE IDLETIME 5;" +
		"EXPIRE K 50;PEXPIRE K 50000;EXPIREAT K 9999999999;PEXPIREAT K 9999999999999;EXPIRE K -1;EXPIREAT K 1;UNLINK K K:2 K:none;DEL K"},
	{"GETEX", "SET K text;SET K:2 other", "SET K v GET;SET K v XX GET;SET K v EXAT 9999999999;SET K v PXAT 9999999999999;GETEX K EX 50;GETEX K PX 50000;" +
		"GETEX K EXAT 9999999999;GETEX K PXAT 9999999999999;GETDEL K;COPY K K:new;COPY K K:2 REPLACE"},
	{"GETEX", "SET K text PX 100000", "GETEX K PERSIST;PERSIST K;SET K v KEEPTTL;SET K v;COPY K K:new"},
	{"EXPIRETIME", "SET K text;SET K:2 other PX 100000", "SET K:new v NX GET;EXPIRE K 500 NX;EXPIRE K:2 500 XX;EXPIRE K:2 500 GT;EXPIRE K:2 5 LT;" +
		"PEXPIRE K 500 NX;PEXPIRE K:2 500 LT;EXPIREAT K:2 9999999999 GT;PEXPIREAT K:2 9999999999999 XX;EXPIRE K:2 -1 LT;expire K:2 500 gt"},
	{"GET", "HSET K f text g 5", "HSET K f v new w;HMSET K f v;HSETNX K new v;HINCRBY K g 2;HINCRBYFLOAT K g 0.5;HDEL K f;HDEL K f g"},
	{"HPEXPIRE", "HSET K f text g 5;HPEXPIRE K 100000 FIELDS 1 f", "HEXPIRE K 50 FIELDS 2 f g;HEXPIRE K 50 NX FIELDS 1 g;HEXPIRE K 500 XX FIELDS 1 f;" +
		"HEXPIRE K 500 GT FIELDS 1 f;HEXPIRE K 5 LT FIELDS 1 f;HPEXPIRE K 500000 GT FIELDS 1 f;HEXPIREAT K 9999999999 XX FIELDS 1 f;" +
		"HPEXPIREAT K 9999999999999 FIELDS 1 g;HPERSIST K FIELDS 1 f;HPEXPIRE K 0 FIELDS 2 f g"},
	{"GET", "RPUSH K b a c a;RPUSH K:2 x", "LPUSH K v w;RPUSH K v w;LPUSHX K v;RPUSHX K v;LINSERT K BEFORE a v;LINSERT K AFTER a v;LSET K -1 v;LREM K 1 a;LREM K -1 a;LREM K 0 a;" +
		"LTRIM K 1 2;LTRIM K 5 9;LPOP K;RPOP K;RPOPLPUSH K K:2;RPOPLPUSH K K;" +
		"SORT K ALPHA STORE K:2;SORT K ALPHA DESC LIMIT 0 2 STORE K;SORT K ASC ALPHA STORE K:new;SORT K:none STORE K:2"},
	{"GETEX", "RPUSH K b a c a;RPUSH K:2 x", "LPOP K 2;RPOP K 9;LMOVE K K:2 LEFT LEFT;LMOVE K K:2 LEFT RIGHT;LMOVE K K:2 RIGHT LEFT;LMOVE K K:new RIGHT RIGHT;LMOVE K K LEFT RIGHT"},
	{"LMPOP", "RPUSH K b a c a;ZADD K:2 1 a 2 b 3 c", "LMPOP 2 K:none K LEFT;LMPOP 2 K:none K RIGHT COUNT 3;ZMPOP 2 K:none K:2 MIN;ZMPOP 1 K:2 MAX COUNT 9"},
	{"GET", "SADD K a b c;SADD K:2 c d", "SADD K d e;SREM K a b;SREM K a b c;SPOP K;SPOP K 2;SMOVE K K:2 a;SMOVE K K:new c;SINTERSTORE K K K:2;SUNIONSTORE K:2 K K:2;SDIFFSTORE K:new K K:2"},
	{"GET", "ZADD K 1 a 2.5 b inf c;ZADD K:2 7 a", "ZADD K 5 a 6 new;ZADD K NX 5 a 6 new;ZADD K XX 5 a 6 new;ZADD K CH 5 a;ZADD K XX CH 5 a;ZADD K CH NX 6 new;" +
		"ZADD K INCR 5 a;ZADD K INCR 5 new;ZADD K XX INCR 5 a;ZADD K NX INCR 5 new;zadd K xx ch 5 a;ZINCRBY K 2 b;ZREM K a c;ZREM K a b c;ZPOPMIN K;ZPOPMIN K 2;ZPOPMAX K 9;" +
		"ZREMRANGEBYRANK K 0 1;ZREMRANGEBYSCORE K (1 +inf;ZREMRANGEBYLEX K - +;ZUNIONSTORE K:2 2 K K:2 WEIGHTS 2 3 AGGREGATE MIN;ZUNIONSTORE K 2 K K:2 AGGREGATE MAX;" +
		"ZUNIONSTORE K:new 1 K WEIGHTS 2;ZINTERSTORE K 2 K K:2 WEIGHTS 2 3 AGGREGATE SUM"},
	{"GETEX", "ZADD K 1 a 2.5 b inf c;ZADD K:2 7 a", "ZADD K GT 5 a 1 b;ZADD K LT -5 a 9 b;ZADD K LT -5 a 9 new;ZADD K GT CH 5 a;ZADD K LT CH -5 a;ZADD K XX GT 5 a 9 new;ZADD K XX LT CH -5 a 9 new;" +
		"ZADD K GT INCR 5 a;ZADD K LT INCR -5 a;ZADD K XX GT CH INCR 5 a;ZADD K CH LT XX INCR -5 a;zadd K lt -5 a;ZDIFFSTORE K 2 K K:2;ZRANGESTORE K:2 K 0 1 REV;ZRANGESTORE K:2 K 1 3 BYSCORE LIMIT 0 1;" +
		"ZRANGESTORE K K [a [b BYLEX;ZRANGESTORE K:new K 0 -1"},
	{"GET", "GEOADD K 13.361389 38.115556 p 15.087269 37.502669 q;ZADD K:2 7 a", "GEOADD K 15 37 p 15.2 37.1 new;GEORADIUS K 15 37 500 km STORE K:2;GEORADIUS K 15 37 500 km COUNT 1 ASC STOREDIST K:2;" +
		"GEORADIUSBYMEMBER K p 500 km DESC STORE K;GEORADIUSBYMEMBER K p 500 km STOREDIST K:new"},
	{"GETEX", "GEOADD K 13.361389 38.115556 p 15.087269 37.502669 q;ZADD K:2 7 a", "GEOADD K NX 15 37 p 15.2 37.1 new;GEOADD K XX 15 37 p 15.2 37.1 new;GEOADD K CH 15 37 p;GEOADD K XX CH 15 37 p;geoadd K nx ch 15 37 new;" +
		"GEOSEARCHSTORE K:2 K FROMMEMBER p BYRADIUS 500 km ASC COUNT 1 ANY;GEOSEARCHSTORE K:2 K FROMLONLAT 15 37 BYBOX 500 500 km STOREDIST;GEOSEARCHSTORE K K FROMMEMBER p BYRADIUS 1 km DESC"},
	{"GET", group, "XADD K 9-1 f v;XADD K * f v;XADD K MAXLEN 1 * f v;XADD K MAXLEN = 1 * f v;XADD K MAXLEN ~ 1 * f v;XADD K MAXLEN 0 9-1 f v;XADD K:new * f v;XDEL K 5-1 6-1;XTRIM K MAXLEN 1;XTRIM K MAXLEN = 0;?XTRIM K MAXLEN ~ 0;" +
		"XACK K g 5-1;XSETID K 9-9;XCLAIM K g d 0 5-1;XCLAIM K g d 0 5-1 JUSTID;XCLAIM K g d 0 5-1 IDLE 5000;XCLAIM K g d 0 5-1 TIME 1000;XCLAIM K g d 0 5-1 RETRYCOUNT 7;XCLAIM K g d 0 6-1 FORCE;XCLAIM K g d 0 5-1 IDLE 9 RETRYCOUNT 3 FORCE JUSTID;" +
		"XREADGROUP GROUP g d STREAMS K >;XREADGROUP GROUP g d COUNT 1 STREAMS K >;XREADGROUP GROUP g d NOACK STREAMS K >;XGROUP CREATE K h 0;XGROUP CREATE K h $;XGROUP CREATE K:new h $ MKSTREAM;XGROUP SETID K g 0;XGROUP DELCONSUMER K g c;XGROUP DESTROY K g"},
	{"GETEX", group, "XADD K NOMKSTREAM * f v;XADD K NOMKSTREAM MAXLEN 1 * f v;XADD K MINID 6-1 * f v;XADD K MINID = 6-1 * f v;XADD K MINID ~ 6-1 * f v;XADD K MAXLEN ~ 1 LIMIT 5 * f v;XTRIM K MINID 6-1;XTRIM K MINID = 6-1;?XTRIM K MINID ~ 6-1 LIMIT 5;" +
		"XAUTOCLAIM K g d 0 0;XAUTOCLAIM K g d 0 0 COUNT 1 JUSTID;XGROUP CREATECONSUMER K g d"},
	{"EXPIRETIME", group, "XADD K 9-* f v;XGROUP CREATE K h 0 ENTRIESREAD 1;XGROUP SETID K g 0 ENTRIESREAD 1;XSETID K 9-9 ENTRIESADDED 10 MAXDELETEDID 7-1;XCLAIM K g d 0 5-1 LASTID 6-1"},
}

// through is a procedure that runs any command.
var through = luatx.Procedure{Name: "through", Source: `return redis.call(unpack(ARGV))`}

// TestUndoOfEveryOption runs each command before one that fails, recorded and by a procedure, on keys with an expiry and
// without.
func TestUndoOfEveryOption(t *testing.T) {
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
					m.row(at, group.setup+expiry, line, "SET K:e text", "INCR K:e", "not an integer", -1)
					if callable {
						m.row(at, group.setup+expiry, "THROUGH "+line, "SET K:e text", "INCR K:e", "not an integer", -1)
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
