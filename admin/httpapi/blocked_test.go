package httpapi_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestBlockedPagesListEachBlockedKeyOnceAndStatsCountThem(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, h := handler(t, client, httpapi.Config{})
		for _, aggregate := range []string{"a", "b", "c", "d", "e"} {
			admintest.Block(t, tr, aggregate, "k "+aggregate, "head "+aggregate, "1 "+aggregate, "2 "+aggregate)
		}
		type page struct {
			Events []struct {
				ID, Key   string
				HoldsBack int `json:"holds_back"`
			}
			Next string
		}
		found := map[string]int{}
		for cursor := ""; ; {
			p := replied[page](t, h, http.MethodGet, "/api/blocked?limit=2&cursor="+url.QueryEscape(cursor), "", http.StatusOK)
			for _, e := range p.Events {
				found[e.ID+" of "+e.Key] += e.HoldsBack
			}
			if cursor = p.Next; cursor == "" {
				break
			}
		}
		if len(found) != 5 || found["head c of k c"] != 2 {
			t.Errorf("found = %v", found)
		}
		stats := replied[struct {
			Blocked struct{ Keys, Events int }
			Age     float64 `json:"oldest_unpublished_seconds"`
			Due     float64 `json:"oldest_due_seconds"`
		}](t, h, http.MethodGet, "/api/stats", "", http.StatusOK)
		if stats.Blocked.Keys != 5 || stats.Blocked.Events != 10 || stats.Age <= 0 || stats.Due != 0 {
			t.Errorf("stats = %+v", stats)
		}
		waits := replied[struct {
			Events []struct{ State, Behind string }
		}](t, h, http.MethodGet, "/api/find?id=2+a", "", http.StatusOK)
		if len(waits.Events) != 1 || waits.Events[0].State != "waiting" || waits.Events[0].Behind != "head a" {
			t.Errorf("waits = %+v", waits)
		}
	})
}
