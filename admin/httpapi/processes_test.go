package httpapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

func TestEventNamesTheRelayThatHoldsItsLease(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, h := handler(t, client, httpapi.Config{})
		admintest.Emit(t, tr, "a", "1")
		store := outbox.NewStore(tr)
		slot, err := store.Slot("a")
		redistest.Must(t, err)
		_, err = store.Claim(ctx, slot, outbox.Work{Lease: time.Hour})
		redistest.Must(t, err)
		leased, err := store.Show(ctx, slot, "1")
		redistest.Must(t, err)
		page := "/api/event?id=1&slot=" + strconv.Itoa(slot)
		if reply := answer(h, asked(t, http.MethodGet, page, "")); reply.Code != http.StatusOK || strings.Contains(reply.Body.String(), "holder") {
			t.Errorf("lease without a reported holder: %d %s", reply.Code, reply.Body)
		}
		id := admintest.Register(t, tr, process.Relay, process.Report{Leases: []process.Lease{{Slot: slot, Lease: leased.Lease, Events: 1}}})
		if reply := answer(h, asked(t, http.MethodGet, page, "")); !strings.Contains(reply.Body.String(), `"holder":"`+id+`"`) {
			t.Errorf("%d %s", reply.Code, reply.Body)
		}
		if reply := answer(h, asked(t, http.MethodGet, "/api/processes?kind=relay", "")); !strings.Contains(reply.Body.String(), `"id":"`+id+`"`) {
			t.Errorf("%d %s", reply.Code, reply.Body)
		}
		if reply := answer(h, asked(t, http.MethodGet, "/api/processes?kind=repair", "")); !strings.Contains(reply.Body.String(), `"processes":[]`) {
			t.Errorf("%d %s", reply.Code, reply.Body)
		}
	})
}
