package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

func TestEventsOfAStateArePagedAndChangedByNameAndByFilter(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, h := handler(t, client, httpapi.Config{})
		store := outbox.NewStore(tr)
		slot, err := store.Slot("a")
		redistest.Must(t, err)
		for i := range 5 {
			_, err := tr.Enqueue(redistest.Soon(t), "a", luatx.Event{
				ID: fmt.Sprint("later", i), At: time.Now().Add(time.Hour), Body: []byte(`{"specversion":"1.0","id":"x","type":"sold","source":"/shop","destination":"bank"}`),
			})
			redistest.Must(t, err)
		}
		admintest.Emit(t, tr, "a", "due")
		found := map[string]bool{}
		for cursor := ""; ; {
			p := replied[pageTold](t, h, http.MethodGet, "/api/events?state=scheduled&limit=2&cursor="+url.QueryEscape(cursor), "", http.StatusOK)
			for _, e := range p.Events {
				if found[e.ID] {
					t.Errorf("%s is listed twice", e.ID)
				}
				found[e.ID] = true
			}
			if cursor = p.Next; cursor == "" {
				break
			}
		}
		if len(found) != 5 || found["due"] {
			t.Errorf("found = %v", found)
		}
		named := fmt.Sprintf(`{"events":[{"slot":%d,"id":"later0"},{"slot":%d,"id":"due"}],"reason":"r"}`, slot, slot)
		answers := replied[struct {
			Done   int
			Events []struct{ ID, Outcome string }
		}](t, h, http.MethodPost, "/api/events/cancel", named, http.StatusOK)
		if answers.Done != 1 || len(answers.Events) != 2 || answers.Events[1].Outcome != "wrong state" {
			t.Errorf("answers = %+v", answers)
		}
		counted := replied[struct {
			Matched      int
			Destinations map[string]int
		}](t, h, http.MethodPost, "/api/events/retry", `{"state":"scheduled","all":true,"reason":"r","dry_run":true}`, http.StatusOK)
		if counted.Matched != 4 || counted.Destinations["bank"] != 4 {
			t.Errorf("counted = %+v", counted)
		}
		o := replied[operationTold](t, h, http.MethodPost, "/api/events/retry", `{"state":"scheduled","filter":{"destination":"bank"},"limit":3,"reason":"r"}`, http.StatusAccepted)
		if o = ended(t, h, o.ID); o.Matched != 3 || o.Done != 3 {
			t.Errorf("operation = %+v", o)
		}
		if due, err := store.FindPending(redistest.Soon(t), 10); err != nil || len(due) != 4 {
			t.Errorf("%d are due, %v", len(due), err)
		}
	})
}

func TestStoppingAnOperationThatRemovesEventsNeedsTheRightToPurge(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	who := httpapi.Identity{Name: "bob", May: httpapi.MayPurge}
	tr, h := handler(t, client, httpapi.Config{Authorize: func(*http.Request) (httpapi.Identity, error) { return who, nil }})
	admintest.Emit(t, tr, "a", "1")
	o := replied[operationTold](t, h, http.MethodPost, "/api/events/cancel", `{"all":true,"reason":"r"}`, http.StatusAccepted)
	who.May = httpapi.MayRetry
	replied[struct{ Detail string }](t, h, http.MethodPost, "/api/operations/"+o.ID+"/stop", "{}", http.StatusForbidden)
}
