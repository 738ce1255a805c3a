package commit

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/test/assert"
)

func TestLoneTransactionUsesTheScriptForOne(t *testing.T) {
	t.Parallel()
	alone, batch := eval.NewScript("a", "return 1"), eval.NewScript("b", "return 2")
	k := &compiled{alone: alone, batch: batch}
	call := &eval.Call{Load: sending(newReplying(t, nil), 0, "a")}
	for n, want := range []*eval.Script{alone, batch, batch} {
		calls := make([]*eval.Call, n+1)
		for i := range calls {
			calls[i] = call
		}
		if script, _ := k.pack(calls); script != want {
			t.Errorf("%d transactions use script %s", n+1, script.Name)
		}
	}
}

func TestBatchOfACompiledScriptHasTheEarliestDeadline(t *testing.T) {
	t.Parallel()
	home := newReplying(t, nil).Shard(0)
	for _, deadlines := range [][]int64{{5}, {5, 6}, {6, 5}, {7, 6, 5}, {7, 5, 6}} {
		k, calls := &compiled{alone: eval.NewScript("a", ""), batch: eval.NewScript("b", "")}, []*eval.Call(nil)
		for _, at := range deadlines {
			calls = append(calls, &eval.Call{Load: &Commit{Shard: home, notAfter: at}})
		}
		_, argv := k.pack(calls)
		deadline, _ := argv[eval.FirstKey+k.keyCount()].(*int64)
		assert.Equal(t, *deadline, 5, "the deadline of %v", deadlines)
	}
}

// TestFirstCallOfABatchKeepsTheArgumentsItHadAlone packs a call alone, and then as the first of a batch. If the round trip of the
// batch fails, the call is sent alone again, with its first arguments.
func TestFirstCallOfABatchKeepsTheArgumentsItHadAlone(t *testing.T) {
	t.Parallel()
	k := &compiled{
		shape: shape{ack: AckFused}, sender: &Sender{}, alone: eval.NewScript("a", "return 1"), batch: eval.NewScript("b", "return 2"),
	}
	home := newReplying(t, nil).Shard(0)
	calls := make([]*eval.Call, 2)
	for i, at := range []int64{7_000_000_000_000, 5_000_000_000_000} {
		calls[i] = &eval.Call{Load: &Commit{Shard: home, Digest: fmt.Sprint(i), notAfter: at, Input: Input{
			Ack: AckFused, Stream: "{a}:in", Group: "g", Consumer: "me", Entry: fmt.Sprint(i, "-1"),
		}}}
	}
	texts := func(argv []any) (all []string) {
		for _, arg := range argv {
			if text, ok := arg.(*string); ok {
				arg = *text
			}
			all = append(all, fmt.Sprint(arg))
		}
		return all
	}
	_, argv := k.pack(calls[:1])
	want := texts(argv)
	if !slices.Contains(want, "7000000000000me") || !slices.Contains(want, "{a}:in:taken") {
		t.Errorf("the arguments are %q", want)
	}
	_, both := k.pack(calls)
	if got := texts(both); !slices.Contains(got, "5000000000000me") {
		t.Errorf("the arguments of the batch are %q", got)
	}
	assert.Equal(t, fmt.Sprint(texts(argv)), fmt.Sprint(want), "the arguments of the first call")
}

func TestCommitLeavesItsRoomToTheNextOne(t *testing.T) {
	t.Parallel()
	k := &compiled{alone: eval.NewScript("a", "")}
	home := newReplying(t, nil).Shard(0)
	c := &Commit{Shard: home, Digest: "d", Token: "t"}
	call := &eval.Call{Load: c}
	_, first := k.pack([]*eval.Call{call})
	c.Reset()
	assert.Equal(t, first[0], any(nil), "an argument of the committed transaction")
	if want := (Commit{room: first[:0]}); !reflect.DeepEqual(*c, want) {
		t.Errorf("the commit is %+v", *c)
	}
	c.Shard = home
	if _, second := k.pack([]*eval.Call{call}); &second[0] != &first[0] {
		t.Error("the next transaction does not use the memory")
	}
	for size, kept := range map[int]bool{maxRoom: true, maxRoom + 1: false} {
		c = &Commit{room: make([]any, size)}
		if c.Reset(); cap(c.room) > 0 != kept {
			t.Errorf("room for %d arguments is kept: %t", size, !kept)
		}
	}
}

func TestKeysOfTakeoversAreRemembered(t *testing.T) {
	t.Parallel()
	var keys takenKeys
	first := keys.of("s0")
	assert.Equal(t, *first, group.TakenKey("s0"), "the key")
	for i := 1; i < 1000; i++ {
		if keys.of("s0") != first {
			t.Fatalf("the key was forgotten after %d other streams", i-1)
		}
		keys.of(fmt.Sprint("s", i))
	}
	assert.Equal(t, *keys.of("another"), group.TakenKey("another"), "the key of another stream")
	assert.Equal(t, len(keys.known), 1, "the number of keys after the limit")
}
