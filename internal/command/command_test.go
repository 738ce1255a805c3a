package command

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/redistest"
)

// TestTableAgreesWithServer holds arity and keys against what a real server says of each command it has.
func TestTableAgreesWithServer(t *testing.T) {
	t.Parallel()
	infos, err := redistest.Shared(t).Client(t).Command(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	// Commands that took options only later, or whose options older servers counted in another way.
	grown := []string{"EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "BITCOUNT", "BITPOS", "LPOP", "RPOP", "ZRANK", "ZREVRANK", "XTRIM"}
	known := 0
	for name, spec := range table {
		info, ok := infos[strings.ToLower(name)]
		if !ok {
			continue // newer than the server
		}
		known++
		if int(info.Arity) != spec.Arity && !slices.Contains(grown, name) {
			t.Errorf("%s: arity %d, the server says %d", name, spec.Arity, info.Arity)
		}
		if int(info.FirstKeyPos) != spec.First || int(info.LastKeyPos) != spec.Last || int(info.StepCount) != spec.Step {
			t.Errorf("%s: keys %d..%d step %d, the server says %d..%d step %d",
				name, spec.First, spec.Last, spec.Step, info.FirstKeyPos, info.LastKeyPos, info.StepCount)
		}
		if writes := slices.Contains(info.Flags, "write"); writes != spec.Writes() {
			t.Errorf("%s: writes is %t, the server says %t", name, spec.Writes(), writes)
		}
		if slices.Contains(info.Flags, "noscript") || slices.Contains(info.Flags, "blocking") {
			t.Errorf("%s may not stand in a script", name)
		}
	}
	if known < 90 {
		t.Errorf("the server knows %d of the table's commands, which is too few to say anything", known)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		ok   bool
	}{
		{"GET k", true},
		{"get k", true},
		{"GET", false},
		{"GET a b", false},
		{"MSET a 1 b 2", true},
		{"MSET a 1 b", false},
		{"HSET k f", false},
		{"HSET k f v", true},
	} {
		args := strings.Fields(c.args)
		spec, ok := Lookup(args[0])
		if !ok {
			t.Fatalf("%s is not in the table", args[0])
		}
		if err := spec.Check(len(args)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	if _, ok := Lookup("FLUSHALL"); ok {
		t.Error("FLUSHALL is allowed")
	}
}

func TestKeysAndHead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, keys, head string
	}{
		{"SET k v EX 5", "k", "k05"},
		{"DEL a b c", "a,b,c", "D04"},
		{"MSET a 1 b 2", "a,b", "K05"},
		{"SUNIONSTORE d a b", "d,a,b", "d14"},
		{"RENAME a b", "a,b", "d23"},
		{"ZADD k 1 m", "k", "z34"},
		{"ZADD k nx CH 1 m 2 n", "k", "z58"},
		{"ZINCRBY k 1 m", "k", "z34"},
		{"XADD k * f v", "k", "d15"},
	} {
		args := strings.Fields(c.args)
		anys := make([]any, len(args))
		for i, a := range args {
			anys[i] = a
		}
		spec, _ := Lookup(args[0])
		var keys []string
		spec.Keys(len(args), func(i int) { keys = append(keys, args[i]) })
		if got := strings.Join(keys, ","); got != c.keys {
			t.Errorf("%s: keys %s, want %s", c.args, got, c.keys)
		}
		if got := spec.Head(anys); got != c.head {
			t.Errorf("%s: head %s, want %s", c.args, got, c.head)
		}
	}
}
