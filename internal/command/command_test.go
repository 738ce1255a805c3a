package command

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

// words returns the words of a line as arguments.
func words(line string) []any {
	var args []any
	for word := range strings.FieldsSeq(line) {
		args = append(args, word)
	}
	return args
}

func spec(t *testing.T, line string) Spec {
	t.Helper()
	s, err := Lookup(words(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return s
}

func TestPolicyCoversEveryCommandOfTheTable(t *testing.T) {
	t.Parallel()
	for _, problem := range Problems(facts) {
		t.Error(problem)
	}
	if n := len(All()); n < 150 {
		t.Errorf("only %d commands are allowed", n)
	}
}

func TestCommandsThatWriteAreUndoneAndThoseThatReadAreNot(t *testing.T) {
	t.Parallel()
	writes := make(map[string]bool)
	for _, f := range slices.Concat(facts, others) {
		writes[f.Name] = f.Flags&Write != 0
	}
	for _, s := range All() {
		assert.Equal(t, s.Writes(), writes[s.Name], "%s: writes", s.Name)
		if s.Writes() && s.Guard != GuardNone {
			t.Errorf("%s writes, and can be guarded", s.Name)
		}
		if !s.Writes() && !s.Decides {
			t.Errorf("%s reads, and its reply does not decide", s.Name)
		}
	}
}

func TestCheckRejectsWrongArgumentsAndRefusedCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, err string }{
		{"GET k", ""},
		{"get k", ""},
		{"gEt k", ""},
		{"GET", "wrong number"},
		{"GET a b", "wrong number"},
		{"MSET a 1 b 2", ""},
		{"MSET a 1 b", "wrong number"},
		{"HSET k f", "wrong number"},
		{"HSET k f v", ""},
		{"xgroup create k g 0", ""},
		{"XGROUP CREATE k", "wrong number"},
		{"XGROUP", "needs a subcommand"},
		{"XGROUP HELP", "administers"},
		{"XGROUP NOSUCH k", "unknown command"},
		{"NOSUCH", "unknown command"},
		{"VADD k", "unknown command"},
		{"FLUSHALL", "reads or writes all slots"},
		{"config get x", "administers"},
		{"BLPOP k 0", "must not wait"},
		{"MULTI", "leave it out"},
		{"EVAL x 0", "register a Procedure"},
		{"EVALSHA x 0", "register a Procedure"},
		{"PUBLISH c m", "emit an event"},
		{"SCAN 0", "use the client"},
		{"HSCAN k 0", "HGETALL"},
		{"MOVE k 1", "another database"},
		{"COPY a b", ""},
		{"COPY a b REPLACE", ""},
		{"COPY a b db 1", "leave DB out"},
		{"SORT k LIMIT 0 5 ALPHA DESC STORE d", ""},
		{"SORT k BY w_*", "BY: it reads keys"},
		{"SORT k LIMIT 0 1 get g_*", "GET: it reads keys"},
		{"SORT_RO k GET g_*", "GET: it reads keys"},
		{"SORT k STORE", "STORE without a key"},
		{"SORT k SIDEWAYS", "not an option"},
		{"XREAD COUNT 1 STREAMS a b 0 0", ""},
		{"XREAD BLOCK 0 STREAMS a 0", "must not wait"},
		{"XREAD COUNT 1 STREAMS a b 0", "streams and ids differ"},
		{"XREAD COUNT 1 a 0", "not an option"},
		{"XREAD COUNT 1 COUNT 2", "STREAMS is missing"},
		{"XREADGROUP GROUP g c block 5 STREAMS a >", "must not wait"},
		{"XREADGROUP GROUP BLOCK STREAMS NOACK STREAMS a >", ""},
		{"LMPOP 2 a b LEFT", ""},
		{"LMPOP 3 a b", "number of the following keys"},
		{"LMPOP 0 a b", "number of the following keys"},
		{"LMPOP x a b", "number of the following keys"},
		{"LMPOP 99999999999999999999 a b", "number of the following keys"},
		{"ZUNIONSTORE d -1 a", "number of the following keys"},
		{"MSETEX 2 a 1 b 2 NX", ""},
		{"MSETEX 2 a 1 b", "number of the following keys"},
		{"XREADGROUP GROUP g c CLAIM 100 STREAMS a >", ""},
		{"XIDMPRECORD k p i 1-1", "XADD with IDMP"},
		{"TRIMSLOTS RANGES 1 0 1", "use the client"},
		{"HOTKEYS GET", "use the client"},
		{"CLUSTERSCAN 0", "use the client"},
	} {
		args := words(c.args)
		s, err := Lookup(args)
		if err == nil {
			err = s.Check(args)
		}
		if err == nil {
			_, err = s.Keys(args)
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.args, err, c.err)
		}
	}
	if _, err := Lookup(nil); err == nil {
		t.Error("an empty command is allowed")
	}
	if _, err := Lookup([]any{42}); err == nil {
		t.Error("a number is a command")
	}
}

func TestRefusalsEndInARemedy(t *testing.T) {
	t.Parallel()
	refused := Refused()
	if len(refused) < 80 {
		t.Errorf("only %d commands are refused", len(refused))
	}
	for _, r := range refused {
		if _, remedy, ok := strings.Cut(r.Reason, "; "); !ok || remedy == "" {
			t.Errorf("%s: %q names no remedy", r.Name, r.Reason)
		}
	}
}

// keyCases lists commands with the positions of their keys, the positions of the keys that they change, and their
// heads.
var keyCases = []struct{ args, keys, changed, head string }{
	{"GET k", "1", "", "-02"},
	{"SET k v EX 5", "1", "1", "k05"},
	{"DEL a b c", "1 2 3", "1 2 3", "D04"},
	{"MSET a 1 b 2", "1 3", "1 3", "K05"},
	{"SUNIONSTORE d a b", "1 2 3", "1", "d14"},
	{"RENAME a b", "1 2", "1 2", "d23"},
	{"COPY a b", "1 2", "2", "m03 2"},
	{"ZADD k 1 m", "1", "1", "z34"},
	{"ZADD k nx CH 1 m 2 n", "1", "1", "z58"},
	{"ZADD k NX nx NX nx NX nx NX 1 m", "1", "1", "z011"},
	{"ZINCRBY k 1 m", "1", "1", "z34"},
	{"GEOADD k 1 2 m", "1", "1", "g45"},
	{"GEOADD k XX CH 1 2 m 3 4 n", "1", "1", "g610"},
	{"XADD k * f v", "1", "1", "x05"},
	{"xadd k maxlen ~ 5 * f v g w", "1", "1", "x010"},
	{"XADD k MAXLEN 5 * f v", "1", "1", "x07"},
	{"XADD k MAXLEN x * f v", "1", "1", "d17"},
	{"XADD k MAXLEN ~ 5 LIMIT 1 * f v", "1", "1", "d110"},
	{"XADD k 1-1 f v", "1", "1", "d15"},
	{"XADD k * f v g", "1", "1", "d16"},
	{"XADD k NOMKSTREAM * f v", "1", "1", "d16"},
	{"XADD k IDMP p i * f v", "1", "1", "d18"},
	{"XADD k MAXLEN 5 DELREF * f v", "1", "1", "d18"},
	{"MSETEX 2 a 1 b 2 EX 5", "2 4", "2 4", "m08 2 4"},
	{"MSETEX 1 a 1", "2", "2", "m04 2"},
	{"DELEX k IFEQ v", "1", "1", "k04"},
	{"DELIFEQ k v", "1", "1", "k03"},
	{"DIGEST k", "1", "", "-02"},
	{"XDELEX k ACKED IDS 1 1-1", "1", "1", "d16"},
	{"XACKDEL k g IDS 1 1-1", "1", "1", "d16"},
	{"XCFGSET k IDMP-MAXSIZE 5", "1", "1", "d14"},
	{"XREADGROUP GROUP g c CLAIM 100 STREAMS a >", "7", "7", "m09 7"},
	{"BITFIELD k SET u8 0 1", "1", "1", "i06"},
	{"BITOP AND d a b", "2 3 4", "2", "m05 2"},
	{"LMPOP 2 a b LEFT", "2 3", "2 3", "m05 2 3"},
	{"ZMPOP 1 a MIN", "2", "2", "m04 2"},
	{"ZUNIONSTORE d 2 a b WEIGHTS 1 2", "1 3 4", "1", "d18"},
	{"ZUNION 2 a b", "2 3", "", "-04"},
	{"SORT k", "1", "", "-02"},
	{"SORT k LIMIT 0 1 STORE d", "1 6", "6", "m07 6"},
	{"SORT k STORE d STORE e", "1 5", "5", "m06 5"},
	{"GEORADIUS k 1 2 3 m", "1", "", "-06"},
	{"GEORADIUS k 1 2 3 m COUNT 1 STORE d", "1 9", "9", "m010 9"},
	{"GEORADIUS k 1 2 3 m STOREDIST d STORE e", "1 7 9", "7 9", "m010 7 9"},
	{"SORT_RO k ALPHA", "1", "", "-03"},
	{"GEORADIUSBYMEMBER k m 3 m storedist d", "1 6", "6", "m07 6"},
	{"XREAD STREAMS a b 0 0", "2 3", "", "-06"},
	{"XREADGROUP GROUP g STREAMS COUNT 1 STREAMS a b > >", "7 8", "7 8", "m011 7 8"},
	{"XGROUP CREATE k g 0", "2", "2", "m05 2"},
	{"XINFO STREAM k", "2", "", "-03"},
	{"PFCOUNT a b", "1 2", "", "i13"},
	{"PFMERGE d a b", "1 2 3", "1", "d14"},
	{"OBJECT ENCODING k", "2", "", "-03"},
	{"LCS a b", "1 2", "", "-03"},
}

func TestCommandsReturnTheirKeysChangedKeysAndHead(t *testing.T) {
	t.Parallel()
	for _, c := range keyCases {
		args := words(c.args)
		s := spec(t, c.args)
		assert.NoError(t, s.Check(args), "%s", c.args)
		keys, err := s.Keys(args)
		if got := numbers(keys); err != nil || got != c.keys {
			t.Errorf("%s: keys at %s, %v, want %s", c.args, got, err, c.keys)
		}
		changed, err := s.WriteKeys(args)
		if got := numbers(changed); err != nil || got != c.changed {
			t.Errorf("%s: changes keys at %s, %v, want %s", c.args, got, err, c.changed)
		}
		assert.Equal(t, s.Head(args), c.head, "%s: head", c.args)
	}
}

func TestNoCommandPanicsWithoutArguments(t *testing.T) {
	t.Parallel()
	for _, c := range All() {
		for _, args := range [][]any{words(c.Name), append(words(c.Name), "k")} {
			s, err := Lookup(args)
			if err != nil || s.Check(args) != nil {
				continue
			}
			if keys, err := s.Keys(args); err == nil && !slices.Equal(keys, []int{len(args) - 1}) {
				t.Errorf("%q: keys at %v", args, keys)
			}
		}
	}
}

func numbers(all []int) string {
	words := make([]string, len(all))
	for i, n := range all {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, " ")
}

func TestReplyDecidesOnlyForCommandsWithConditions(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"SET k v": false, "SET k v EX 5": false, "SET k NX": false, "SET k v NX": true, "set k v ex 5 xx": true, "SET k v GET": true,
		"ZADD k 1 m": false, "ZADD k 1 INCR": false, "ZADD k XX INCR 1 m": true, "GET k": true, "INCR k": true, "SETNX k v": true,
		"HSETEX k FIELDS 1 f v": false, "HSETEX k FNX FIELDS 1 f v": true, "SORT k": true, "SORT k STORE d": false,
		"GEORADIUS k 1 2 3 m": true, "GEORADIUS k 1 2 3 m STORE d": false, "XREADGROUP GROUP g c STREAMS k >": true,
		"SET k v IFEQ w": true, "SET k v ifne w": true, "SET k v IFDEQ 0": true, "SET k v IFDNE 0": true, "SET k IFEQ": false,
		"HSETEX k NX FIELDS 1 f v": true, "HSETEX k EX 5 xx FIELDS 1 f v": true, "HSETEX k FIELDS 2 FNX v NX w": false,
		"MSETEX 2 a NX b XX": false, "MSETEX 2 a 1 b 2 EX 5": false, "MSETEX 1 a 1 PX 5 xx": true, "MSETEX x a 1 NX": false,
		"DELEX k": false, "DELEX k IFDNE 0": true, "DELIFEQ k v": true,
		"EXPIRE k 5": false, "EXPIRE k 5 NX": true, "PEXPIREAT k 5 GT": true, "HEXPIRE k 5 FIELDS 1 NX": false,
		"HPEXPIRE k 5 LT FIELDS 1 f": true, "ZADD k NX 1 m": true, "ZADD k ch 1 m": true, "ZADD k GT CH 1 m": true,
		"ZADD k": false, "GEOADD k 1 2 NX": false, "GEOADD k CH 1 2 m": true,
		"XADD k * f NOMKSTREAM": false, "XADD k NOMKSTREAM * f v": true, "xadd k maxlen ~ 5 limit 1 nomkstream * f v": true,
		"XADD k IDMP NOMKSTREAM i * f v": false, "XADD k IDMPAUTO p KEEPREF NOMKSTREAM * f v": true, "XADD k MAXLEN": false,
		"XDELEX k IDS 1 ACKED": false, "XDELEX k ACKED IDS 1 1-1": true, "XACKDEL k g ACKED IDS 1 1-1": true, "XACKDEL k ACKED IDS 1 1-1": false,
	} {
		assert.Equal(t, spec(t, line).Decides, want, "%s: decides", line)
	}
}

func TestEachReadHasItsGuard(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]Guard{
		"GET k": GuardOrdered, "HGETALL k": GuardPairs, "SMEMBERS k": GuardMembers, "HVALS k": GuardMembers, "TTL k": GuardNone,
		"SRANDMEMBER k": GuardNone, "SET k v": GuardNone, "INCR k": GuardNone, "SORT k": GuardOrdered, "SORT k STORE d": GuardNone,
		"PFCOUNT k": GuardOrdered, "TOUCH k": GuardNone, "DUMP k": GuardNone, "XPENDING k g": GuardNone,
	} {
		assert.Equal(t, spec(t, line).Guard, want, "%s: guard", line)
	}
}

func TestKeysAreFoundAmongManyArguments(t *testing.T) {
	t.Parallel()
	for _, n := range []int{255, 256, 257, 258, 1000} {
		args := make([]any, n+1)
		args[0] = "DEL"
		keys, err := spec(t, "DEL k").Keys(args)
		if err != nil || len(keys) != n || keys[0] != 1 || keys[n-1] != n || !slices.IsSorted(keys) {
			t.Errorf("DEL of %d keys: %v, %v", n, keys, err)
		}
		args = make([]any, 2*n+1)
		args[0] = "MSET"
		keys, err = spec(t, "MSET k v").Keys(args)
		if err != nil || len(keys) != n || keys[0] != 1 || keys[n-1] != 2*n-1 {
			t.Errorf("MSET of %d keys: %v, %v", n, keys, err)
		}
	}
}

func TestUsualCommandsAllocateNothing(t *testing.T) {
	for _, line := range []string{"get k", "SET k v EX 5", "hset k f v", "DEL a b c", "MSET a 1 b 2", "ZADD k NX 1 m", "xadd k * f v", "SUNIONSTORE d a b"} {
		args := words(line)
		n := testing.AllocsPerRun(100, func() {
			s, err := Lookup(args)
			if err != nil || s.Check(args) != nil {
				t.Fatal(line)
			}
			_, _ = s.Keys(args)
			_, _ = s.WriteKeys(args)
			_ = s.Head(args)
		})
		if n > 0 {
			t.Errorf("%s: %v allocations", line, n)
		}
	}
}

func TestLuaTableHasTheCommandsWithFixedKeys(t *testing.T) {
	t.Parallel()
	table := LuaTable()
	for _, entry := range []string{
		" GET:1:1:1:-0:2 ", " DEL:1:-1:1:D0:-2 ", " MSET:1:-1:2:K0:-3 ", " ZADD:1:1:1:z0:-4 ", " GEOADD:1:1:1:g0:-5 ", " XADD:1:1:1:d1:-5 ",
		" RENAME:1:2:1:d2:3 ",
	} {
		if !strings.Contains(table, entry) {
			t.Errorf("it lacks %q", entry)
		}
	}
	for _, name := range []string{"SORT", "SORT_RO", "XREAD", "LMPOP", "ZUNION", "COPY", "GEORADIUS", "XGROUP", "BITOP"} {
		if strings.Contains(table, " "+name+":") {
			t.Errorf("it has %s, whose keys depend on its arguments", name)
		}
	}
	if strings.Contains(table, "  ") || strings.Contains(table, "\n") {
		t.Error("it is no line of single words")
	}
}
