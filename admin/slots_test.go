package admin_test

import (
	"strings"
	"testing"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestListsRejectSlotsThatDoNotExist(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, op := admintest.Service(t, client, 4)
	for _, slot := range []int{-1, 16384} {
		var errs []error
		for _, err := range op.InboxPositions(t.Context(), admin.InboxPositionFilter{Slots: []int{slot}}) {
			errs = append(errs, err)
		}
		for _, err := range op.Timers(t.Context(), admin.TimerFilter{Slots: []int{slot}}) {
			errs = append(errs, err)
		}
		if len(errs) != 2 {
			t.Fatalf("slot %d: %v, want an error of each list", slot, errs)
		}
		for _, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "use 0 to 16383") {
				t.Errorf("slot %d: %v", slot, err)
			}
		}
	}
}
