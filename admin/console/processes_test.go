package console_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

func TestPagesShowProcessesTriggersAndTheHolderOfALease(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 4)
		s := newSite(t, op, nil)
		admintest.Emit(t, tr, "a", "1")
		store := outbox.NewStore(tr)
		slot, err := store.Slot("a")
		redistest.Must(t, err)
		_, err = store.Claim(ctx, slot, outbox.Work{Lease: time.Hour})
		redistest.Must(t, err)
		leased, err := store.Show(ctx, slot, "1")
		redistest.Must(t, err)
		admintest.Register(t, tr, process.Trigger, process.Report{
			InFlight: 4, Trigger: &process.TriggerReport{Function: "mail", State: "Backoff", Stalled: true, Lag: 1234, LastError: "no route"},
		})
		has := func(to string, wants ...string) {
			t.Helper()
			_, page := s.get(t, to)
			for _, want := range wants {
				if !strings.Contains(page, want) {
					t.Errorf("%s does not contain %q:\n%s", to, want, page)
				}
			}
		}
		has("processes", "No relay is alive", "mail", "Backoff", "stalled", "1,234", "no route")
		id := admintest.Register(t, tr, process.Relay, process.Report{Leases: []process.Lease{{Slot: slot, Lease: leased.Lease, Events: 1}}})
		has("event?id=1&slot="+strconv.Itoa(slot), "Held by", id)
		has("processes?kind=relay", "1 lease")
		if _, page := s.get(t, "processes"); strings.Contains(page, "No relay is alive") {
			t.Error("page warns that no relay is alive although one is")
		}
	})
}
