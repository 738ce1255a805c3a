package command

import "strings"

// policy is the information about a command that no server reports.
type policy struct {
	decides bool
	guard   Guard
	undo    string
	refusal string // why a transaction cannot contain the command, and an alternative
}

// The reasons why commands are refused.
const (
	blocks     = "it blocks, and a transaction must not wait; use the non-blocking form (LPOP, LMOVE, ZPOPMIN, XREAD without BLOCK …)"
	connection = "it changes the connection, and a commit may use any connection; send it with the client, outside of the transaction"
	nests      = "the transaction is atomic without it; leave it out"
	subscribes = "it turns the connection into a subscription; use the client's Subscribe"
	publishes  = "a published message cannot be undone if the transaction fails; emit an event"
	replicas   = "a script cannot wait for replicas; set Config.Durability"
	wide       = "it reads or writes all slots, and a transaction has one; use the client outside of the transaction"
	elsewhere  = "it moves a key to another database or server; use the client outside of the transaction, or RENAME within the slot"
	database   = "a transaction has one database; leave DB out (the Copy of go-redis always sends it, so use Do(ctx, \"COPY\", source, destination))"
	cursor     = "its cursor is useless after the commit; read everything (HGETALL, SMEMBERS, ZRANGE), or scan outside of the transaction"
	script     = "it runs another script, whose writes cannot be undone; register a Procedure"
	admin      = "it administers or inspects the server; use the client outside of the transaction"
	cluster    = "it administers or inspects the cluster; use the client outside of the transaction"
	former     = "Redis 7.0 removed it; use LCS"
	internal   = "only the server sends it, to its replicas and its append-only file; use XADD with IDMP"
	policyLFU  = "it works with maxmemory-policy *-lfu only; use the client outside of the transaction"
)

// policies returns the policy of each command, and the names that have two policies. Commands of modules have no policy
// and are refused as unknown.
func policies() (all map[string]policy, twice []string) {
	all = make(map[string]policy)
	add := func(p policy, names string) {
		for name := range strings.SplitSeq(names, ",") {
			name = strings.Join(strings.Fields(name), " ")
			if _, ok := all[name]; ok {
				twice = append(twice, name)
			}
			all[name] = p
		}
	}
	reads := func(guard Guard, names string) { add(policy{decides: true, guard: guard, undo: none}, names) }
	writes := func(undo, names string) { add(policy{undo: undo}, names) }
	decides := func(undo, names string) { add(policy{decides: true, undo: undo}, names) }
	refuse := func(reason, names string) { add(policy{refusal: reason}, names) }

	// Reads.
	reads(GuardOrdered, `GET, STRLEN, GETRANGE, SUBSTR, MGET, LCS, GETBIT, BITCOUNT, BITPOS, BITFIELD_RO, DIGEST,
		TYPE, EXISTS, EXPIRETIME, PEXPIRETIME, SORT_RO,
		HGET, HMGET, HLEN, HEXISTS, HSTRLEN, HEXPIRETIME, HPEXPIRETIME,
		LLEN, LRANGE, LINDEX, LPOS, SISMEMBER, SMISMEMBER, SCARD, SINTERCARD,
		ZSCORE, ZMSCORE, ZRANK, ZREVRANK, ZCARD, ZCOUNT, ZLEXCOUNT, ZRANGE, ZREVRANGE, ZRANGEBYSCORE, ZREVRANGEBYSCORE,
		ZRANGEBYLEX, ZREVRANGEBYLEX, ZUNION, ZINTER, ZDIFF, ZINTERCARD,
		GEODIST, GEOHASH, GEOPOS, GEOSEARCH, GEORADIUS_RO, GEORADIUSBYMEMBER_RO, XLEN, XRANGE, XREVRANGE, XREAD`)
	reads(GuardMembers, "HKEYS, HVALS, SMEMBERS, SINTER, SUNION, SDIFF")
	reads(GuardPairs, "HGETALL")
	reads(GuardNone, `TTL, PTTL, HTTL, HPTTL, DUMP, TOUCH, OBJECT ENCODING, OBJECT IDLETIME, OBJECT REFCOUNT, MEMORY USAGE,
		HRANDFIELD, SRANDMEMBER, ZRANDMEMBER, XPENDING, XINFO STREAM, XINFO GROUPS, XINFO CONSUMERS`)
	// PFCOUNT stores the count that it has computed in the key.
	add(policy{decides: true, guard: GuardOrdered, undo: "i1"}, "PFCOUNT")

	// Strings and bits.
	writes("k0", "SET, SETEX, PSETEX")
	writes("k0", "DELEX")
	decides("k0", "SETNX, GETSET, GETDEL, GETEX, DELIFEQ")
	writes("K0", "MSET")
	decides("K0", "MSETNX")
	writes(listed, "MSETEX")
	writes("i0", "APPEND, SETRANGE")
	decides("i0", "INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT, SETBIT, BITFIELD")
	writes(listed, "BITOP")
	writes("d1", "PFADD, PFMERGE")

	// Hashes.
	writes("h0", "HSET, HMSET")
	decides("h0", "HSETNX, HINCRBY, HINCRBYFLOAT")
	writes("H0", "HDEL")
	writes("d1", "HSETEX, HEXPIRE, HPEXPIRE, HEXPIREAT, HPEXPIREAT, HPERSIST")
	decides("d1", "HGETEX, HGETDEL")

	// Lists.
	writes("l0", "LPUSH, LPUSHX")
	writes("r0", "RPUSH, RPUSHX")
	writes("d1", "LSET, LREM, LTRIM, LINSERT")
	decides("d1", "LPOP, RPOP")
	decides("d2", "RPOPLPUSH, LMOVE")
	decides(listed, "LMPOP")

	// Sets.
	writes("s0", "SADD")
	writes("S0", "SREM")
	decides("d1", "SPOP")
	decides("d2", "SMOVE")
	writes("d1", "SINTERSTORE, SUNIONSTORE, SDIFFSTORE")

	// Sorted sets.
	writes("z0", "ZADD")
	decides("z3", "ZINCRBY")
	writes("Z0", "ZREM")
	writes("g0", "GEOADD")
	writes("d1", `ZREMRANGEBYRANK, ZREMRANGEBYSCORE, ZREMRANGEBYLEX, ZUNIONSTORE, ZINTERSTORE, ZDIFFSTORE, ZRANGESTORE,
		GEOSEARCHSTORE`)
	decides("d1", "ZPOPMIN, ZPOPMAX")
	decides(listed, "ZMPOP")
	writes(listed, "GEORADIUS, GEORADIUSBYMEMBER")

	// Streams.
	writes("d1", "XADD, XDEL, XDELEX, XTRIM, XACK, XACKDEL, XSETID, XCFGSET")
	decides("d1", "XCLAIM, XAUTOCLAIM")
	decides(listed, "XREADGROUP")
	writes(listed, "XGROUP CREATE, XGROUP CREATECONSUMER, XGROUP DELCONSUMER, XGROUP DESTROY, XGROUP SETID")

	// Keys.
	writes("t0", "EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT, PERSIST")
	writes("D0", "DEL, UNLINK")
	writes("d2", "RENAME")
	decides("d2", "RENAMENX")
	decides(listed, "COPY")
	writes("d1", "RESTORE")
	writes(listed, "SORT")

	refuse(blocks, "BLPOP, BRPOP, BLMOVE, BLMPOP, BRPOPLPUSH, BZPOPMIN, BZPOPMAX, BZMPOP")
	refuse(connection, "AUTH, CLIENT, ECHO, HELLO, PING, QUIT, RESET, SELECT")
	refuse(nests, "MULTI, EXEC, DISCARD, WATCH, UNWATCH")
	refuse(subscribes, "SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE, PUNSUBSCRIBE, SSUBSCRIBE, SUNSUBSCRIBE")
	refuse(publishes, "PUBLISH, SPUBLISH")
	refuse(replicas, "WAIT, WAITAOF")
	refuse(wide, "KEYS, SCAN, CLUSTERSCAN, RANDOMKEY, DBSIZE, FLUSHALL, FLUSHDB, SWAPDB")
	refuse(elsewhere, "MOVE, MIGRATE")
	refuse(cursor, "HSCAN, SSCAN, ZSCAN")
	refuse(script, "EVAL, EVAL_RO, EVALSHA, EVALSHA_RO, FCALL, FCALL_RO, FUNCTION, SCRIPT")
	refuse(admin, `ACL, BGREWRITEAOF, BGSAVE, COMMAND, COMMANDLOG, CONFIG, DEBUG, HOTKEYS, INFO, LASTSAVE, LATENCY, LOLWUT, MODULE, MONITOR,
		PFDEBUG, PFSELFTEST, PUBSUB, SAVE, SHUTDOWN, SLOWLOG, TIME,
		MEMORY DOCTOR, MEMORY HELP, MEMORY MALLOC-STATS, MEMORY PURGE, MEMORY STATS, OBJECT HELP, XGROUP HELP, XINFO HELP`)
	refuse(cluster, `ASKING, CLUSTER, FAILOVER, PSYNC, READONLY, READWRITE, REPLCONF, REPLICAOF, RESTORE-ASKING, ROLE, SLAVEOF,
		SYNC, TRIMSLOTS`)
	refuse(internal, "XIDMPRECORD")
	refuse(former, "STRALGO")
	refuse(policyLFU, "OBJECT FREQ")
	return all, twice
}

// others lists the commands that the server of table_gen.go does not have: those of Valkey, and those that Redis
// removed.
var others = []Fact{
	{Name: "CLUSTERSCAN", Since: "Valkey 9.1", Group: "cluster", Arity: -2},
	{Name: "COMMANDLOG", Since: "Valkey 8.1", Group: "server", Arity: -2},
	{Name: "DELIFEQ", Since: "Valkey 9.0.0", Group: "string", Arity: 3, Flags: Write, Keys: []KeySpec{{Fixed, 1, 0, 1, true}}},
	{Name: "STRALGO", Since: "6.0.0", Group: "string", Arity: -2},
}
