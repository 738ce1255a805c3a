package shard

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/slot"
)

func TestConcurrentCallersReceiveTheSameShardOfASlot(t *testing.T) {
	t.Parallel()
	s := New(eval.New(nil, "shop", slog.Default()), Constants{Namespace: "shop"})
	const askers = 4
	var given [askers][slot.Count]Shard
	var begin, asking sync.WaitGroup
	begin.Add(1)
	for i := range askers {
		asking.Go(func() {
			begin.Wait()
			for n := range slot.Count {
				given[i][n] = s.Shard(n)
			}
		})
	}
	begin.Done()
	asking.Wait()
	for n := range slot.Count {
		for i := range askers {
			if given[i][n] != given[0][n] {
				t.Fatalf("slot %d has two shards", n)
			}
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("luatx 1, namespace n, own tags")
	f.Add("'\\\n\x00\xff]]")
	f.Fuzz(func(t *testing.T, s string) {
		quoted := Quote(s)
		if quoted[0] != '\'' || quoted[len(quoted)-1] != '\'' || strings.ContainsAny(quoted[1:len(quoted)-1], "'\n\r") {
			t.Errorf("%q is no Lua string: %s", s, quoted)
		}
	})
}
