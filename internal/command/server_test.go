package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

// grown are commands that took options only later, or whose options older servers counted in another way.
var grown = []string{
	"EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "BITCOUNT", "BITPOS", "LPOP", "RPOP", "ZRANK", "ZREVRANK", "XTRIM", "XSETID",
	"PFMERGE", "XINFO", "XGROUP", "OBJECT", "MEMORY",
}

// TestTableAgreesWithServer holds the table against what the running server says of each command it has.
func TestTableAgreesWithServer(t *testing.T) {
	t.Parallel()
	infos, err := redistest.Shared(t).Client(t).Command(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	allowed := 0
	for name, info := range infos {
		name = strings.ToUpper(name)
		if slices.Contains(info.Flags, "module") || name == "HOST:" || name == "POST" { // traps for browsers
			continue
		}
		r := table.find(name)
		switch {
		case r == nil:
			t.Errorf("%s has no policy", name)
		case r.refusal != nil || r.subcommands != nil:
		default:
			allowed++
			if int(info.Arity) != r.spec.Arity && !slices.Contains(grown, name) {
				t.Errorf("%s: arity %d, the server says %d", name, r.spec.Arity, info.Arity)
			}
			if writes := slices.Contains(info.Flags, "write"); writes != r.spec.Writes() {
				t.Errorf("%s: writes is %t, the server says %t", name, r.spec.Writes(), writes)
			}
			if slices.Contains(info.Flags, "noscript") {
				t.Errorf("%s may not stand in a script", name)
			}
			if slices.Contains(info.Flags, "blocking") && r.spec.check == nil {
				t.Errorf("%s blocks", name)
			}
		}
	}
	if allowed < 105 {
		t.Errorf("the server knows %d of the table's commands, which is too few to say anything", allowed)
	}
}

// keyLines are arguments of every kind that moves keys.
var keyLines = strings.Split(strings.TrimSpace(`
GET k
set k v ex 5
MGET a b c
MSET a 1 b 2 c 3
MSETNX a 1
DEL a
UNLINK a b c d
EXISTS a b
TOUCH a b
RENAME a b
RENAMENX a b
COPY a b REPLACE
OBJECT ENCODING k
OBJECT IDLETIME k
MEMORY USAGE k SAMPLES 5
DUMP k
RESTORE k 0 x REPLACE
SORT k
SORT k ASC ALPHA
SORT k LIMIT 0 5 STORE d
SORT k STORE d STORE e
SORT k STORE store
SORT k LIMIT 0 1 STORE d DESC
SORT_RO k LIMIT 0 1
BITOP AND d a b c
BITOP NOT d a
BITFIELD k GET u8 0
BITFIELD_RO k GET u8 0
LCS a b LEN
PFADD k a
PFCOUNT a b c
PFMERGE d a b
HSET h f v
HGETDEL h FIELDS 1 f
HSETEX h EX 5 FIELDS 1 f v
MSETEX 1 a 1
MSETEX 3 a 1 b 2 c 3 NX EX 5
DELEX k IFEQ v
DELIFEQ k v
DIGEST k
LMOVE a b LEFT RIGHT
RPOPLPUSH a b
LMPOP 1 a LEFT
LMPOP 3 a b c RIGHT COUNT 2
SMOVE a b m
SINTER a b
SINTERSTORE d a b
SUNIONSTORE d a
SDIFFSTORE d a b c
SINTERCARD 2 a b LIMIT 5
ZADD k 1 m
ZUNION 2 a b WEIGHTS 1 2 WITHSCORES
ZINTER 1 a
ZDIFF 3 a b c
ZUNIONSTORE d 2 a b AGGREGATE MAX
ZINTERSTORE d 1 a
ZDIFFSTORE d 2 a b
ZINTERCARD 2 a b LIMIT 1
ZRANGESTORE d s 0 -1
ZMPOP 2 a b MIN COUNT 3
GEOADD k 1 2 m
GEORADIUS k 1 2 3 m
GEORADIUS k 1 2 3 m WITHDIST COUNT 5 ASC
GEORADIUS k 1 2 3 m STORE d
GEORADIUS k 1 2 3 m COUNT 5 STOREDIST d
GEORADIUSBYMEMBER k m 3 m
GEORADIUSBYMEMBER k m 3 m STORE d
GEORADIUSBYMEMBER k STORE 3 m STOREDIST d
GEORADIUS_RO k 1 2 3 m
GEORADIUSBYMEMBER_RO k m 3 m
GEOSEARCH k FROMMEMBER m BYRADIUS 1 m
GEOSEARCHSTORE d s FROMMEMBER m BYRADIUS 1 m STOREDIST
XADD k * f v
XADD k IDMP p i * f v
XDELEX k IDS 1 1-1
XACKDEL k g ACKED IDS 1 1-1
XCFGSET k IDMP-MAXSIZE 5
XREAD STREAMS a 0
XREAD COUNT 5 STREAMS a b c 0 0 0
XREADGROUP GROUP g c STREAMS a >
XREADGROUP GROUP g c COUNT 5 NOACK STREAMS a b > >
XREADGROUP GROUP streams STREAMS COUNT 1 STREAMS a 0
XACK k g 1-1 2-2
XCLAIM k g c 0 1-1
XAUTOCLAIM k g c 0 0
XGROUP CREATE k g 0 MKSTREAM
XGROUP DESTROY k g
XINFO STREAM k
XINFO GROUPS k
XINFO CONSUMERS k g
XPENDING k g
XSETID k 1-1
`), "\n")

// TestKeysAgreeWithServer holds the keys that are found against those that the server finds.
func TestKeysAgreeWithServer(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	compared := 0
	for _, line := range keyLines {
		args := words(line)
		want, err := client.Do(t.Context(), append([]any{"COMMAND", "GETKEYS"}, args...)...).StringSlice()
		if err != nil {
			known, _ := client.Do(t.Context(), "COMMAND", "INFO", args[0]).Slice()
			if len(known) == 1 && known[0] != nil {
				t.Errorf("%s: %v", line, err)
			}
			continue
		}
		compared++
		s := spec(t, line)
		keys, err := s.Keys(args)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		got := make([]string, len(keys))
		for i, at := range keys {
			got[i] = word(args[at])
		}
		slices.Sort(got) // the server names a destination last where it is movable
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: keys %q, the server says %q", line, got, want)
		}
	}
	if compared < 60 {
		t.Errorf("only %d of %d lines were compared", compared, len(keyLines))
	}
}
