package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
)

// countTypes makes a shard count parked events of so many types, the first of them most.
func countTypes(t testing.TB, tr *luatx.Transactor, set func(context.Context, string, ...any) error, types int) {
	t.Helper()
	key := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("parked:by")
	var values []any
	for i := range types {
		values = append(values, fmt.Sprintf("t:shop.order.%06d.placed.by.a.producer", i), types-i)
		if len(values) == 20_000 || i == types-1 {
			redistest.Must(t, set(redistest.Soon(t), key, values...))
			values = nil
		}
	}
}

func TestStatsNameTheHundredLargestAndCountTheRest(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	client := redistest.Shared(t).Client(t)
	tr, h := handler(t, client, httpapi.Config{})
	countTypes(t, tr, func(ctx context.Context, key string, values ...any) error {
		return client.HSet(ctx, key, values...).Err()
	}, 250)
	parked := replied[struct {
		Parked struct {
			ByType    map[string]int64 `json:"by_type"`
			Remainder struct{ Types, Destinations struct{ Names, Events int64 } }
		}
	}](t, h, http.MethodGet, "/api/stats", "", http.StatusOK).Parked
	if n := len(parked.ByType); n != 100 || parked.ByType["shop.order.000000.placed.by.a.producer"] != 250 || parked.ByType["shop.order.000099.placed.by.a.producer"] != 151 {
		t.Errorf("%d types: %v", n, parked.ByType)
	}
	if rest := parked.Remainder; rest.Types.Names != 150 || rest.Types.Events != 150*151/2 || rest.Destinations.Names != 0 {
		t.Errorf("the remainder is %+v", rest)
	}
}
