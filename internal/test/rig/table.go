package rig

// CommandRows has one line for each allowed command, with argument lists. Words that begin with $ stand for keys and random
// values; a key with ! is never replaced by another one. After => stands how go-redis reads the reply and how the tests
// compare it. The first list of a line succeeds on every server that has the command.
const CommandRows = `
APPEND: $str $v => int | $int $v => int
BITCOUNT: $bits => int | $bits $n $n => int
BITFIELD: $bits GET u8 $n => ints | $bits SET i64 0 $i GET i64 0 => ints | $bits OVERFLOW $overflow INCRBY i60 3 $i GET u8 #1 => ints | $bits INCRBY u63 #1 $i GET u63 #1 => ints
BITFIELD_RO: $bits GET u8 $n => ints | $bits GET i64 0 GET u63 1 GET u16 #2 => ints
BITOP: AND $none $bits $str => int | OR $str $bits $none => int | NOT $none $bits => int | XOR $bits $bits $str $str2 => int
BITPOS: $bits 1 => int | $bits 0 $n => int | $str 1 $n $n => int
COPY: $hash $none => int | $stream $none => int | $zset $str REPLACE => int | $none $str => int | $exp $none => int
DECR: $int => int | $none => int
DECRBY: $int 3 => int | $int $i => int
DEL: $str $none $hash => int | $any => int
DELEX: $str => int | $str IFEQ hello => int | $exp IFNE $v => int | $str IFDEQ $digest => int | $any => int | $any IFDNE $digest => int
DELIFEQ: $str hello => int | $exp $v => int | $any hello => int
DIGEST: $str => str | $none => str | $any => str
DUMP: $str! => str | $list! => str | $none! => str | $any => str any
EXISTS: $str $none $any => int
EXPIRE: $str 1000 => int | $exp $sec NX => int | $exp $sec GT => int | $any $sec => int | $hash -1 => int
EXPIREAT: $str $at => int | $exp $at XX => int | $hash 1 => int
EXPIRETIME: $exp => int | $str => int | $none => int
GEOADD: $geo 13.5 38.5 p5 => int | $geo $lon $lat $p => int | $geo NX CH $lon $lat $p $lon $lat $p => int
GEODIST: $geo p1 p2 => float | $geo $p $p km => float
GEOHASH: $geo p1 $p => strs
GEOPOS: $geo p1 $p => geopos
GEORADIUS: $geo 15 37 200 km ASC => strs | $geo 15 37 $radius km WITHDIST WITHCOORD WITHHASH ASC => geo | $geo 15 37 200 km STORE $none => int | $geo 15 37 200 km COUNT 1 STOREDIST $zset => int
GEORADIUSBYMEMBER: $geo p1 $radius km ASC => strs | $geo p1 200 km STORE $none => int
GEORADIUSBYMEMBER_RO: $geo p1 $radius km DESC => strs
GEORADIUS_RO: $geo 15 37 200 km ASC => strs | $geo 15 37 $radius km WITHDIST ASC COUNT 2 => georadius
GEOSEARCH: $geo FROMMEMBER p1 BYRADIUS $radius km ASC => strs | $geo FROMLONLAT 15 37 BYBOX 400 400 km ASC => strs
GEOSEARCHSTORE: $none $geo FROMLONLAT 15 37 BYRADIUS 200 km => int | $zset $geo FROMMEMBER p1 BYBOX 400 $radius km STOREDIST => int
GET: $str => str | $exp => str | $none => str | $int => int
GETBIT: $bits $c => int
GETDEL: $str => str | $exp => str
GETEX: $str => str | $exp PERSIST => str | $str EX $sec => str | $exp PXAT $atms => str
GETRANGE: $str $n $n => str
GETSET: $str $v => str | $exp $v => str
HDEL: $hash f1 => int | $hash $f $f f9 => int | $small f1 => int
HEXISTS: $hash $f => bool
HEXPIRE: $hash 1000 FIELDS 1 f1 => ints | $hexp $sec GT FIELDS 2 $f $f => ints
HEXPIREAT: $hash $at FIELDS 1 f1 => ints | $hexp 1 FIELDS 2 f1 $f => ints
HEXPIRETIME: $hexp FIELDS 2 f1 $f => ints
HGET: $hash f1 => str | $hash $f => str
HGETALL: $hash => map | $none => map
HGETDEL: $hash FIELDS 2 f1 $f => strs | $small FIELDS 1 f1 => strs
HGETEX: $hash EX 1000 FIELDS 1 f1 => strs | $hexp PERSIST FIELDS 2 $f f1 => strs
HINCRBY: $hash f1 5 => int | $hash f3 $i => int | $hash $f $i => int
HINCRBYFLOAT: $hash f4 0.5 => float | $hash $f $d => float
HKEYS: $hash => strs set | $none => strs set
HLEN: $hash => int
HMGET: $hash f1 $f $f => slice
HMSET: $hash f1 $v $f $v => status
HPERSIST: $hexp FIELDS 1 f1 => ints | $hash FIELDS 1 $f => ints
HPEXPIRE: $hash 1000000 FIELDS 1 f1 => ints | $hexp 1000000 XX FIELDS 1 $f => ints
HPEXPIREAT: $hash $atms FIELDS 1 f1 => ints | $hexp $atms NX FIELDS 2 $f $f => ints
HPEXPIRETIME: $hexp FIELDS 2 f1 $f => ints
HPTTL: $hexp FIELDS 2 f1 $f => ints near
HRANDFIELD: $hash 100 => strs set | $hash -3 => strs len | $hash 100 WITHVALUES => keyvalues set
HSET: $hash f1 $v => int | $none $f $v $f $v => int | $hexp f1 $v => int
HSETEX: $hash EX 1000 FIELDS 1 f1 $v => int | $hexp KEEPTTL FIELDS 1 f1 $v => int | $hash FNX FIELDS 1 $f $v => int | $hexp XX EX 1000 FIELDS 1 f1 $v => int | $hash NX FIELDS 1 f1 $v => int
HSETNX: $hash f9 $v => bool | $hash $f $v => bool
HSTRLEN: $hash $f => int
HTTL: $hexp FIELDS 2 f1 $f => ints near
HVALS: $hash => strs set
INCR: $int => int | $none => int | $exp => int
INCRBY: $int 5 => int | $int $i => int
INCRBYFLOAT: $int 0.5 => float | $none $d => float
LCS: $str $str2 => str | $str $str2 LEN => int | $str $str2 IDX WITHMATCHLEN MINMATCHLEN 2 => pairs
LINDEX: $list $n => str
LINSERT: $list BEFORE b $v => int | $list AFTER $v $v => int
LLEN: $list => int
LMOVE: $list $none LEFT RIGHT => str | $list $list2 RIGHT LEFT => str | $list $list LEFT RIGHT => str
LMPOP: 1 $list LEFT => keystrs | 2 $none $list RIGHT COUNT $c => keystrs | 1 $none LEFT => keystrs
LPOP: $list => str | $list $c => strs
LPOS: $list b => int | $list b RANK -1 => int | $list b COUNT 0 => ints
LPUSH: $list $v $v => int | $none $v => int
LPUSHX: $list $v => int | $none $v => int
LRANGE: $list 0 -1 => strs | $list $n $n => strs
LREM: $list $n b => int
LSET: $list 0 $v => status | $list $n $v => status
LTRIM: $list 0 1 => status | $list $n $n => status
MEMORY USAGE: $str => int near | $any => int near
MGET: $str $none $exp => slice
MSET: $str $v $none $v => status | $exp $v $hash $v => status
MSETEX: 1 $str $v => int | 2 $exp $v $none $v EX 1000 => int | 2 $str $v $none $v XX => int | 2 $none $v $none2 $v NX PX $ms => int | 2 $exp $v $any $v KEEPTTL => int
MSETNX: $none $v $none2 $v => bool | $str $v $none $v => bool
OBJECT ENCODING: $hash => str | $any => str
OBJECT IDLETIME: $str => int near
OBJECT REFCOUNT: $str => int
PERSIST: $exp => bool | $str => bool
PEXPIRE: $str 1000000 => int | $exp 1000000 LT => int | $none 1000000 => int
PEXPIREAT: $str $atms => int | $any $atms => int
PEXPIRETIME: $exp => int
PFADD: $hll e1 $v => int | $none $v $v => int
PFCOUNT: $hll => int | $hll $hll2 $none => int
PFMERGE: $hll $hll2 => status | $none $hll $hll2 => status
PSETEX: $str 1000000 $v => status | $list 1000000 $v => status
PTTL: $exp => int near | $str => int near | $none => int near
RENAME: $str $none => status | $exp $hash => status | $stream $str => status | $none $str => status
RENAMENX: $str $none => bool | $str $exp => bool
RESTORE: $none 0 $dump => status | $none $ms $dump => status | $str 0 $dump REPLACE => status | $str 0 $dump => status | $none 0 $v => status
RPOP: $list => str | $list $c => strs
RPOPLPUSH: $list $none => str | $list $list2 => str
RPUSH: $list $v $v => int | $none $v => int
RPUSHX: $list $v => int
SADD: $set m8 => int | $set $m $m $v => int | $none $i => int
SCARD: $set => int
SDIFF: $set $set2 => strs set
SDIFFSTORE: $none $set $set2 => int | $str $set $none => int
SET: $str $v => status | $str $v EX $sec => status | $exp $v KEEPTTL => status | $str $v NX => status | $none $v XX => status | $str $v GET => str | $hash $v PX $ms => status | $str $v IFEQ hello => status | $exp $v IFNE $v GET => str | $str $v IFDEQ $digest => status | $any $v IFDNE $digest KEEPTTL => status
SETBIT: $bits $c 1 => int
SETEX: $str 1000 $v => status | $str $sec $v => status
SETNX: $none $v => bool | $str $v => bool
SETRANGE: $str 2 $v => int | $none $n $v => int
SINTER: $set $set2 => strs set
SINTERCARD: 2 $set $set2 => int | 1 $set LIMIT 1 => int
SINTERSTORE: $none $set $set2 => int | $set $set $none => int
SISMEMBER: $set $m => bool
SMEMBERS: $set => strs set
SMISMEMBER: $set $m $m => bools
SMOVE: $set $set2 m1 => bool | $set $none $m => bool
SORT: $nums => strs | $nums LIMIT 0 2 DESC => strs | $set ALPHA DESC => strs | $nums STORE $none => int | $set ALPHA STORE $hash => int | $set => strs
SORT_RO: $nums => strs | $set ALPHA LIMIT 1 2 => strs
SPOP: $set 100 => strs set | $none! => str
SRANDMEMBER: $set 100 => strs set | $set -5 => strs len | $none! => str
SREM: $set m1 $m => int | $set m1 m2 m3 m4 => int
STRLEN: $str => int
SUBSTR: $str $n $n => str
SUNION: $set $set2 => strs set
SUNIONSTORE: $none $set $set2 => int
TOUCH: $str $none => int
TTL: $exp => int near | $str => int near | $none => int near
TYPE: $any => status
UNLINK: $str $none $zset => int
XACK: $stream g 1-1 $id => int | $stream nosuch 1-1 => int
XACKDEL: $stream g IDS 1 1-1 => ints | $stream g DELREF IDS 2 1-1 $id => ints | $stream g ACKED IDS 1 $id => ints | $stream nosuch IDS 1 1-1 => ints
XADD: $stream 9-1 f $v => str | $stream * f $v g $v => str any | $none * f $v => str any | $stream MAXLEN ~ 100 * f $v => str any | $stream MAXLEN 2 9-* f $v => str | $stream NOMKSTREAM 9-9 f $v => str | $stream $id f $v => str | $stream IDMP p i * f $v => str any | $stream IDMPAUTO p * f $v => str any | $stream DELREF MAXLEN 1 * f $v => str any
XAUTOCLAIM: $stream g c2 0 0 => claimed | $stream g c2 0 0 COUNT 1 JUSTID => claimedids
XCFGSET: $stream IDMP-MAXSIZE 7 => status | $stream IDMP-DURATION $c IDMP-MAXSIZE $c => status | $any IDMP-MAXSIZE 9 => status
XCLAIM: $stream g c2 0 1-1 => messages | $stream g c2 0 1-1 $id JUSTID => strs | $stream g c2 0 $id FORCE RETRYCOUNT 5 => messages
XDEL: $stream 2-1 $id => int
XDELEX: $stream IDS 1 2-1 => ints | $stream ACKED IDS 2 1-1 $id => ints | $stream DELREF IDS 1 $id => ints | $none IDS 1 1-1 => ints
XGROUP CREATE: $stream h 0 => status | $none h $id MKSTREAM => status | $stream g 0 => status | $stream h $id => status
XGROUP CREATECONSUMER: $stream g c9 => int | $stream g c1 => int
XGROUP DELCONSUMER: $stream g c1 => int | $stream nosuch c1 => int
XGROUP DESTROY: $stream g => int | $stream nosuch => int
XGROUP SETID: $stream g 1-1 => status | $stream g $id => status
XINFO CONSUMERS: $stream g => xconsumers typed
XINFO GROUPS: $stream => xgroups
XINFO STREAM: $stream => xstream | $stream FULL => xfull typed
XLEN: $stream => int
XPENDING: $stream g => pending | $stream g - + 10 => pendings typed | $stream g - + 10 c1 => pendings typed
XRANGE: $stream - + => messages | $stream $id + COUNT 2 => messages
XREAD: STREAMS $stream 0 => streams | COUNT 1 STREAMS $stream $stream2 $id 0 => streams | STREAMS $none 0 => streams
XREADGROUP: GROUP g c2 STREAMS $stream > => streams | GROUP g c1 COUNT 1 STREAMS $stream 0 => streams | GROUP nosuch c STREAMS $stream > => streams | GROUP g c2 COUNT 1 CLAIM 0 STREAMS $stream > => cmd any
XREVRANGE: $stream + - => messages | $stream + $id COUNT 2 => messages
XSETID: $stream 9-9 => status | $stream $id => status
XTRIM: $stream MAXLEN 1 => int | $stream MAXLEN $c => int | $stream MINID $id => int
ZADD: $zset 5 m9 => int | $zset $s $m $s $m => int | $zset XX CH $s $m => int | $zset INCR $s $m => float | $none $s $m => int | $zset GT $s m1 => int | $zset NX nx NX nx NX nx NX CH 2 m8 => int
ZCARD: $zset => int
ZCOUNT: $zset -inf $s => int | $zset (1 +inf => int
ZDIFF: 2 $zset $zset2 => strs | 2 $zset $none WITHSCORES => zs
ZDIFFSTORE: $none 2 $zset $zset2 => int
ZINCRBY: $zset 2.5 m1 => float | $zset $s $m => float
ZINTER: 2 $zset $zset2 => strs | 2 $zset $set WITHSCORES => zs
ZINTERCARD: 2 $zset $zset2 => int | 2 $zset $zset2 LIMIT 1 => int
ZINTERSTORE: $none 2 $zset $zset2 => int | $zset 2 $zset $set WEIGHTS 2 3 AGGREGATE MAX => int
ZLEXCOUNT: $lex - + => int | $lex [a (c => int
ZMPOP: 1 $zset MIN => keyzs | 2 $none $zset MAX COUNT $c => keyzs | 1 $none MIN => keyzs
ZMSCORE: $zset m1 m2 => floats
ZPOPMAX: $zset => zs | $zset $c => zs
ZPOPMIN: $zset => zs | $zset $c => zs
ZRANDMEMBER: $zset 100 => strs set | $zset -4 => strs len | $zset 100 WITHSCORES => zs set
ZRANGE: $zset 0 -1 => strs | $zset $n $n WITHSCORES => zs | $zset (1 +inf BYSCORE LIMIT 0 2 => strs | $lex [a [c BYLEX REV => strs
ZRANGEBYLEX: $lex [a [c => strs
ZRANGEBYSCORE: $zset -inf +inf WITHSCORES => zs | $zset $s $s => strs
ZRANGESTORE: $none $zset 0 1 => int | $zset2 $zset 1 +inf BYSCORE => int
ZRANK: $zset m1 => int | $zset $m => int | $zset m2 WITHSCORE => rank
ZREM: $zset m1 $m => int | $zset m1 m2 m3 m4 => int
ZREMRANGEBYLEX: $lex [a (c => int
ZREMRANGEBYRANK: $zset 0 $n => int
ZREMRANGEBYSCORE: $zset -inf $s => int
ZREVRANGE: $zset 0 -1 => strs | $zset $n $n WITHSCORES => zs
ZREVRANGEBYLEX: $lex [c [a => strs
ZREVRANGEBYSCORE: $zset +inf -inf => strs
ZREVRANK: $zset m1 => int | $zset $m => int
ZSCORE: $zset m1 => float | $zset $m => float
ZUNION: 2 $zset $zset2 => strs | 2 $zset $zset2 WEIGHTS 2 0.5 WITHSCORES => zs
ZUNIONSTORE: $none 2 $zset $zset2 => int | $zset 1 $zset2 AGGREGATE MIN => int
`

// CommandKeys has the commands that create each key; K stands for it. A key named $none… does not exist.
var CommandKeys = map[string][]string{
	"str":     {"SET K hello"},
	"str2":    {"SET K yellow"},
	"int":     {"SET K 9007199254740992"},
	"exp":     {"SET K 12", "PEXPIREAT K $later"},
	"bits":    {"SET K \x80\x01\xff\x7f\x10\x21\xfe\xdc\x80\x55\xaa"},
	"hash":    {"HMSET K f1 1 f2 text f3 9007199254740992 f4 3.5"},
	"small":   {"HMSET K f1 1", "PEXPIREAT K $later"},
	"hexp":    {"HMSET K f1 1 f2 text", "HPEXPIREAT K $later FIELDS 1 f1"}, // before 7.4 without expiry
	"list":    {"RPUSH K a b c b 7"},
	"list2":   {"RPUSH K x"},
	"nums":    {"RPUSH K 3 1 2 10"},
	"set":     {"SADD K m1 m2 m3 m4"},
	"set2":    {"SADD K m3 m4 m5"},
	"zset":    {"ZADD K 1 m1 2.5 m2 9007199254740993 m3 0.1 m4"},
	"zset2":   {"ZADD K 3 m1 4 m5"},
	"lex":     {"ZADD K 0 a 0 b 0 c 0 d"},
	"geo":     {"GEOADD K 13.361389 38.115556 p1 15.087269 37.502669 p2 15.2 37.1 p3"},
	"hll":     {"PFADD K e1 e2 e3"},
	"hll2":    {"PFADD K e3 e4"},
	"stream":  {"XADD K 1-1 f v", "XADD K 2-1 f w", "XADD K 3-1 f x", "XGROUP CREATE K g 0", "XREADGROUP GROUP g c1 COUNT 2 STREAMS K >"},
	"stream2": {"XADD K 1-1 f v"},
	"none":    nil,
	"none2":   nil,
}

// CommandValues has the values of all other words that begin with $. If a list must succeed, only the first value is used.
var CommandValues = map[string][]string{
	"v":        {"value", "", "7", "a\x00\r\n\xff", "9007199254740993", "m1", "b"},
	"i":        {"4", "-9", "9007199254740993", "-9007199254740995", "9223372036854775807", "-9223372036854775808", "x"},
	"d":        {"0.25", "-1e10", "3", "1e300", "x"},
	"s":        {"3", "-2.5", "0.1", "inf", "-inf", "9007199254740993", "nan", "x"},
	"n":        {"1", "0", "-1", "-2", "3", "40", "-40"},
	"c":        {"2", "1", "3", "0", "-1"},
	"f":        {"f1", "f2", "f3", "f4", "f9"},
	"m":        {"m1", "m2", "m3", "m5", "m9"},
	"p":        {"p1", "p2", "p3", "p9"},
	"id":       {"2-1", "0", "1-1", "3-1", "8-8", "0-0", "x"},
	"sec":      {"1000", "5000", "0", "-5", "x"},
	"ms":       {"1000000", "5000000", "0", "x"},
	"lon":      {"13.5", "15", "181", "x"},
	"lat":      {"38", "37.25", "-10", "95"},
	"radius":   {"200", "100", "1000", "-1"},
	"digest":   {"9555e8555c62dcfd", "0000000000000000", "x"}, // of hello
	"overflow": {"WRAP", "SAT", "FAIL", "x"},
}
