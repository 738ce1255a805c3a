// Package command knows the commands that a transaction may hold: where their keys stand, whether they write,
// whether a caller needs the reply to go on, and how they are undone.
package command

import (
	"fmt"
	"strconv"
	"strings"
)

// Spec describes one command.
type Spec struct {
	// Name in capitals.
	Name string
	// Arity counts the name too; negative: at least that many arguments.
	Arity int
	// First, Last and Step say where the keys stand, as COMMAND does: Last -1 is the last argument.
	First, Last, Step int
	// Decides is true where a caller acts on the reply (GET, INCR, SETNX …): before the commit there is none.
	Decides bool
	// Undo is the undo class with its digit, as lua/_undo.lua describes them; "-0" needs none.
	Undo string
}

// Writes reports whether the command changes anything.
func (s Spec) Writes() bool { return s.Undo != none }

const none = "-0"

// The shapes that most commands have.
var (
	oneKey  = [3]int{1, 1, 1}
	twoKeys = [3]int{1, 2, 1}
	allKeys = [3]int{1, -1, 1}
	pairs   = [3]int{1, -1, 2}
)

// table is the set of allowed commands. Not here, and so refused: what blocks, changes the connection, spans
// the keyspace or hides its keys.
var table = func() map[string]Spec {
	specs := make(map[string]Spec)
	add := func(decides bool, keys [3]int, undo string, commands ...string) {
		for _, c := range commands {
			name, arity := c, 0
			if _, err := fmt.Sscanf(c, "%s %d", &name, &arity); err != nil {
				continue // a row without arity is caught by the table's test
			}
			specs[name] = Spec{name, arity, keys[0], keys[1], keys[2], decides, undo}
		}
	}
	reads := func(keys [3]int, commands ...string) { add(true, keys, none, commands...) }
	writes := func(keys [3]int, undo string, commands ...string) { add(false, keys, undo, commands...) }
	decides := func(keys [3]int, undo string, commands ...string) { add(true, keys, undo, commands...) }

	reads(oneKey, "GET 2", "STRLEN 2", "GETRANGE 4", "SUBSTR 4", "GETBIT 3", "BITCOUNT -2", "BITPOS -3",
		"TYPE 2", "TTL 2", "PTTL 2", "EXPIRETIME 2", "PEXPIRETIME 2", "DUMP 2",
		"HGET 3", "HMGET -3", "HGETALL 2", "HKEYS 2", "HVALS 2", "HLEN 2", "HEXISTS 3", "HSTRLEN 3",
		"SISMEMBER 3", "SMISMEMBER -3", "SMEMBERS 2", "SCARD 2", "SRANDMEMBER -2",
		"ZSCORE 3", "ZMSCORE -3", "ZRANK -3", "ZREVRANK -3", "ZCARD 2", "ZCOUNT 4", "ZLEXCOUNT 4", "ZRANGE -4", "ZREVRANGE -4",
		"ZRANGEBYSCORE -4", "ZREVRANGEBYSCORE -4", "ZRANGEBYLEX -4", "ZREVRANGEBYLEX -4",
		"LLEN 2", "LRANGE 4", "LINDEX 3", "LPOS -3", "XLEN 2", "XRANGE -4", "XREVRANGE -4")
	reads(allKeys, "MGET -2", "EXISTS -2", "TOUCH -2", "SINTER -2", "SUNION -2", "SDIFF -2")

	writes(oneKey, "k0", "SET -3", "SETEX 4", "PSETEX 4")
	decides(oneKey, "k0", "SETNX 3", "GETSET 3", "GETDEL 2", "GETEX -2")
	writes(pairs, "K0", "MSET -3")
	decides(pairs, "K0", "MSETNX -3")
	writes(oneKey, "i0", "APPEND 3", "SETRANGE 4")
	decides(oneKey, "i0", "INCR 2", "DECR 2", "INCRBY 3", "DECRBY 3", "INCRBYFLOAT 3", "SETBIT 4")

	writes(oneKey, "h0", "HSET -4", "HMSET -4")
	decides(oneKey, "h0", "HSETNX 4", "HINCRBY 4", "HINCRBYFLOAT 4")
	writes(oneKey, "H0", "HDEL -3")

	writes(oneKey, "s0", "SADD -3")
	writes(oneKey, "S0", "SREM -3")
	decides(oneKey, "d1", "SPOP -2")
	decides(twoKeys, "d2", "SMOVE 4")
	writes(allKeys, "d1", "SINTERSTORE -3", "SUNIONSTORE -3", "SDIFFSTORE -3")

	writes(oneKey, "z0", "ZADD -4") // the digit, where the first member stands, depends on the options
	decides(oneKey, "z3", "ZINCRBY 4")
	writes(oneKey, "Z0", "ZREM -3")
	writes(oneKey, "d1", "ZREMRANGEBYRANK 4", "ZREMRANGEBYSCORE 4", "ZREMRANGEBYLEX 4")
	decides(oneKey, "d1", "ZPOPMIN -2", "ZPOPMAX -2")

	writes(oneKey, "l0", "LPUSH -3", "LPUSHX -3")
	writes(oneKey, "r0", "RPUSH -3", "RPUSHX -3")
	writes(oneKey, "d1", "LSET 4", "LREM 4", "LTRIM 4", "LINSERT 5")
	decides(oneKey, "d1", "LPOP -2", "RPOP -2")
	decides(twoKeys, "d2", "RPOPLPUSH 3", "LMOVE 5")

	writes(oneKey, "d1", "XADD -5", "XDEL -3", "XTRIM -4")
	writes(oneKey, "d1", "PFADD -2")

	writes(oneKey, "t0", "EXPIRE -3", "PEXPIRE -3", "EXPIREAT -3", "PEXPIREAT -3", "PERSIST 2")
	writes(allKeys, "D0", "DEL -2", "UNLINK -2")
	writes(twoKeys, "d2", "RENAME 3")
	decides(twoKeys, "d2", "RENAMENX 3")
	return specs
}()

// Lookup finds a command by name, in any case.
func Lookup(name string) (Spec, bool) {
	if spec, ok := table[name]; ok {
		return spec, true
	}
	spec, ok := table[strings.ToUpper(name)]
	return spec, ok
}

// Check reports whether n arguments, the name included, suit the command.
func (s Spec) Check(n int) error {
	if s.Arity >= 0 && n != s.Arity || s.Arity < 0 && n < -s.Arity || s.Step == 2 && n%2 == 0 {
		return fmt.Errorf("%s: wrong number of arguments", s.Name)
	}
	return nil
}

// Keys calls yield with the position of each key among n arguments.
func (s Spec) Keys(n int, yield func(int)) {
	last := s.Last
	if last < 0 {
		last += n
	}
	for i := s.First; i <= last; i += s.Step {
		yield(i)
	}
}

// Head is what the script is told of a command with these arguments: its undo class, a digit, and how many
// arguments it has.
func (s Spec) Head(args []any) string {
	undo := s.Undo
	if s.Name == "ZADD" {
		undo = "z" + strconv.Itoa(firstMember(args))
	}
	return undo + strconv.Itoa(len(args))
}

// firstMember is where the first member of a ZADD stands: after the key, the options and a score.
func firstMember(args []any) int {
	i := 2
	for ; i < len(args)-1; i++ {
		option, _ := args[i].(string)
		switch strings.ToUpper(option) {
		case "NX", "XX", "GT", "LT", "CH", "INCR":
		default:
			return i + 1
		}
	}
	return i
}
