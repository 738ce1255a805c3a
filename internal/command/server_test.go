package command

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

// grown lists commands that got options only later, or whose options older servers counted differently.
var grown = []string{
	"EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "BITCOUNT", "BITPOS", "LPOP", "RPOP", "ZRANK", "ZREVRANK", "XTRIM", "XSETID",
	"PFMERGE", "XINFO", "XGROUP", "OBJECT", "MEMORY",
}

func TestTableAgreesWithServer(t *testing.T) {
	t.Parallel()
	infos, err := redistest.Shared(t).Client(t).Command(t.Context()).Result()
	redistest.Must(t, err)
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

// keyLines are commands of every kind that affects the positions of keys, in addition to those of keyCases.
var keyLines = strings.Split(strings.TrimSpace(`
MGET a b c
MSETNX a 1
UNLINK a b c d
EXISTS a b
TOUCH a b
RENAMENX a b
OBJECT IDLETIME k
MEMORY USAGE k SAMPLES 5
DUMP k
RESTORE k 0 x REPLACE
SORT k ASC ALPHA
SORT k STORE store
SORT k LIMIT 0 1 STORE d DESC
BITOP NOT d a
BITFIELD_RO k GET u8 0
PFADD k a
HSET h f v
HGETDEL h FIELDS 1 f
HSETEX h EX 5 FIELDS 1 f v
LMOVE a b LEFT RIGHT
RPOPLPUSH a b
LMPOP 3 a b c RIGHT COUNT 2
SMOVE a b m
SINTER a b
SINTERSTORE d a b
SDIFFSTORE d a b c
SINTERCARD 2 a b LIMIT 5
ZUNION 2 a b WEIGHTS 1 2 WITHSCORES
ZINTER 1 a
ZDIFF 3 a b c
ZINTERSTORE d 1 a
ZDIFFSTORE d 2 a b
ZINTERCARD 2 a b LIMIT 1
ZRANGESTORE d s 0 -1
ZMPOP 2 a b MIN COUNT 3
GEORADIUS k 1 2 3 m WITHDIST COUNT 5 ASC
GEORADIUSBYMEMBER k m 3 m
GEORADIUSBYMEMBER k STORE 3 m STOREDIST d
GEORADIUS_RO k 1 2 3 m
GEORADIUSBYMEMBER_RO k m 3 m
GEOSEARCH k FROMMEMBER m BYRADIUS 1 m
GEOSEARCHSTORE d s FROMMEMBER m BYRADIUS 1 m STOREDIST
XREAD STREAMS a 0
XREAD COUNT 5 STREAMS a b c 0 0 0
XREADGROUP GROUP g c STREAMS a >
XREADGROUP GROUP g c COUNT 5 NOACK STREAMS a b > >
XACK k g 1-1 2-2
XCLAIM k g c 0 1-1
XAUTOCLAIM k g c 0 0
XGROUP CREATE k g 0 MKSTREAM
XGROUP DESTROY k g
XINFO GROUPS k
XINFO CONSUMERS k g
XPENDING k g
XSETID k 1-1
`), "\n")

// divided lists commands that servers parse differently: Redis 6.0 does not support CLAIM, and of two destinations
// Redis 6.0 and Valkey 9.1 report only the one that they write.
var divided = []string{"XREADGROUP GROUP g c CLAIM 100 STREAMS a >", "GEORADIUS k 1 2 3 m STOREDIST d STORE e"}

func TestKeysAgreeWithServer(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	lines, compared := slices.Clone(keyLines), 0
	for _, c := range keyCases {
		if !slices.Contains(divided, c.args) {
			lines = append(lines, c.args)
		}
	}
	for _, line := range lines {
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
		assert.NoError(t, err, "%s", line)
		got := make([]string, len(keys))
		for i, at := range keys {
			got[i] = word(args[at])
		}
		slices.Sort(got) // the server reports a destination last if its position can vary
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: keys %q, the server says %q", line, got, want)
		}
	}
	if compared < 60 {
		t.Errorf("only %d of %d lines were compared", compared, len(lines))
	}
}

func TestWidenedBitfieldWritesAndRepliesAsTheOriginal(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(t), t.Context()
	tag := redistest.Tag(t)
	for i, ops := range []string{
		"GET i64 0", "GET u63 0", "get I64 #1", "GET i54 3 GET u8 0 GET u53 5",
		"SET i64 0 9007199254740993 GET i64 0", "SET i64 0 -9007199254740993 GET u63 0 SET i64 #0 5",
		"SET u63 7 9223372036854775807 INCRBY u63 7 1 GET u63 7",
		"SET i64 64 -9223372036854775808 OVERFLOW FAIL INCRBY i64 64 -1 OVERFLOW SAT INCRBY i64 64 -1 OVERFLOW WRAP INCRBY i64 64 -1",
		"INCRBY i64 #2 9007199254740993 INCRBY i60 #2 1 GET i64 128", "SET u8 0 255 INCRBY u8 0 1",
		"GET i64", "GET i65 0", "SET i64 x 1", "NOSUCH i64 0", "GET i64 #9999999999999", "OVERFLOW WRAP",
	} {
		a, b := fmt.Sprintf("{%s}a%d", tag, i), fmt.Sprintf("{%s}b%d", tag, i)
		client.Set(ctx, a, "\x80\x01\xff\x7f\x10\x20\xfe\xdc\x80\x55\xaa\x00\x99\xf0\x0f\xe1", 0)
		client.Set(ctx, b, client.Get(ctx, a).Val(), 0)
		want, wantErr := client.Do(ctx, words("BITFIELD "+a+" "+ops)...).Result()
		sent, read := Exact(words("bitfield " + b + " " + ops))
		got, err := client.Do(ctx, sent...).Result()
		if read != nil {
			got = read(got)
		}
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v, want %v, %v", ops, got, err, want, wantErr)
		}
		assert.Equal(t, client.Get(ctx, a).Val(), client.Get(ctx, b).Val(), "%s: what it wrote", ops)
		if wide := strings.Contains(ops, "64 ") || strings.Contains(ops, "63 "); err == nil && wide && read == nil {
			t.Errorf("%s: left as it is", ops)
		}
	}
}

func TestMain(m *testing.M) { redistest.Main(m) }
