package repair_test

import (
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/repair"
)

func TestFixAddsToAnIndexAtMaxmemory(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	s := newShop(t, client)
	s.furnish(t)
	s.do(t, "ZREM", s.key("pending"), "pending")
	redistest.Must(t, redistest.AsAdmin(t, client).ConfigSet(t.Context(), "maxmemory", "1").Err())
	fixed := 0
	for f, err := range newWorker(t, s.tr, repair.Config{}).Fix(redistest.Soon(t)) {
		redistest.Must(t, err)
		if f.Kind == repair.Unindexed && f.Fixed {
			fixed++
		}
	}
	if fixed != 1 {
		t.Errorf("%d events were put into their index, want 1", fixed)
	}
}
