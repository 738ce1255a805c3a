package httpapi_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

// identified returns a handler of a ward. Its requests come from the current value of who.
func identified(t testing.TB, client redis.UniversalClient, who *httpapi.Identity) ward {
	t.Helper()
	return newWard(t, client, httpapi.Config{Authorize: func(*http.Request) (httpapi.Identity, error) { return *who, nil }})
}

func TestPayloadsNeedTheirOwnRight(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		var who httpapi.Identity
		w := identified(t, client, &who)
		at := "slot=" + strconv.Itoa(w.slot) + "&id=1"
		dead := "stream=" + url.QueryEscape(w.stream) + "&id=" + w.letter
		for _, path := range []string{
			"/api/event?payload=1&" + at, "/api/find?payload=1&id=1", "/api/parked/export", "/event?body=1&" + at,
			"/api/dead/letter?payload=1&" + dead, "/api/dead/export?" + dead, "/letter?body=1&" + dead,
		} {
			for _, c := range []struct {
				who  httpapi.Identity
				site string
				want int
			}{
				{httpapi.Identity{Name: "bob", May: httpapi.MayPurge}, "", http.StatusForbidden},
				{httpapi.Identity{Name: "bob", Payloads: true}, "", http.StatusForbidden},
				{httpapi.Identity{Name: "bob", May: httpapi.MayView, Payloads: true}, "cross-site", http.StatusForbidden},
				{httpapi.Identity{Name: "bob", May: httpapi.MayView, Payloads: true}, "same-site", http.StatusForbidden},
				{httpapi.Identity{Name: "bob", May: httpapi.MayView, Payloads: true}, "none", http.StatusOK},
				{httpapi.Identity{Name: "bob", May: httpapi.MayView, Payloads: true}, "same-origin", http.StatusOK},
				{httpapi.Identity{Name: "bob", May: httpapi.MayView, Payloads: true}, "", http.StatusOK},
			} {
				who = c.who
				r := asked(t, http.MethodGet, path, "")
				if c.site != "" {
					r.Header.Set("Sec-Fetch-Site", c.site)
				}
				reply := answer(w.handler, r)
				if reply.Code != c.want || strings.Contains(reply.Body.String(), "4111") != (c.want == http.StatusOK) {
					t.Errorf("%s by %+v from %q: %d %s", path, c.who, c.site, reply.Code, reply.Body)
				}
			}
		}
		who = httpapi.Identity{Name: "bob", May: httpapi.MayPurge}
		for _, path := range []string{"/event?" + at, "/parked", "/letter?" + dead, "/dead?stream=" + url.QueryEscape(w.stream)} {
			page := answer(w.handler, asked(t, http.MethodGet, path, "")).Body.String()
			if strings.Contains(page, "Show the body") || strings.Contains(page, "/export") || strings.Contains(page, "4111") {
				t.Errorf("%s offers payloads:\n%s", path, page)
			}
		}
	})
}

func TestAuditRecordsEachReadOfPayloads(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		who := httpapi.Identity{Name: "bob", May: httpapi.MayView, Payloads: true}
		w := identified(t, client, &who)
		at := "slot=" + strconv.Itoa(w.slot) + "&id=1"
		dead := "stream=" + url.QueryEscape(w.stream) + "&id=" + w.letter
		for _, path := range []string{
			"/api/event?payload=1&" + at, "/api/find?payload=1&id=1", "/api/parked/export?class=refused", "/event?body=1&" + at, "/api/event?" + at,
			"/api/dead/letter?payload=1&" + dead, "/api/dead/letter?" + dead, "/letter?body=1&" + dead, "/letter?" + dead, "/api/dead/export?text=script&" + dead,
		} {
			if reply := answer(w.handler, asked(t, http.MethodGet, path, "")); reply.Code != http.StatusOK {
				t.Errorf("%s: %d %s", path, reply.Code, reply.Body)
			}
		}
		var reads, exports []outbox.Record
		for r, err := range w.operator(t, client).Audit(redistest.Soon(t), time.UnixMilli(0)) {
			redistest.Must(t, err)
			switch {
			case r.Who != "bob":
			case r.Act == "read" && r.Slot == w.slot && r.Done == 1 && len(r.IDs) == 1 && r.IDs[0] == "1":
				reads = append(reads, r)
			case r.Act == "read" && strings.Contains(r.Why, w.stream) && r.Done == 1 && r.IDs[0] == w.letter:
				reads = append(reads, r)
			case r.Act == "export" && (strings.Contains(r.Why, "refused") || strings.Contains(r.Why, w.stream) && strings.Contains(r.Why, "script")):
				exports = append(exports, r)
			default:
				t.Errorf("unexpected %+v", r)
			}
		}
		if len(reads) != 5 || len(exports) != 2 {
			t.Errorf("%d reads and %d exports: %v %v", len(reads), len(exports), reads, exports)
		}
	})
}

func TestStoppingDiscardNeedsTheRightToPurge(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	who := httpapi.Identity{Name: "bob", May: httpapi.MayPurge}
	w := identified(t, client, &who)
	discard := replied[operationTold](t, w.handler, http.MethodPost, "/api/parked/discard", `{"filter":{"class":"none"},"reason":"r"}`, http.StatusAccepted)
	fix := replied[operationTold](t, w.handler, http.MethodPost, "/api/fix", `{}`, http.StatusAccepted)
	who.May = httpapi.MayRetry
	replied[any](t, w.handler, http.MethodPost, "/api/operations/"+discard.ID+"/stop", `{}`, http.StatusForbidden)
	replied[any](t, w.handler, http.MethodPost, "/api/operations/"+fix.ID+"/stop", `{}`, http.StatusOK)
	who.May = httpapi.MayPurge
	replied[any](t, w.handler, http.MethodPost, "/api/operations/"+discard.ID+"/stop", `{}`, http.StatusOK)
}

// TestRequestsOfProxiesAreNotLocal sends what nginx sends by `proxy_pass http://127.0.0.1:8080` without further settings.
func TestRequestsOfProxiesAreNotLocal(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, op := admintest.Service(t, client, 1)
	h, err := httpapi.New(op, httpapi.Config{})
	if err != nil {
		return // without an authorizer nobody is served
	}
	t.Cleanup(h.Close)
	r := asked(t, http.MethodGet, "/api/stats", "")
	r.Host, r.Proto, r.ProtoMinor, r.Close = "127.0.0.1:8080", "HTTP/1.0", 0, true
	if reply := answer(h, r); reply.Code < 400 {
		t.Errorf("status %d: %s", reply.Code, reply.Body)
	}
}

func TestResponsesOmitCorruptTimes(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	client := redistest.Shared(t).Client(t) // miniredis writes such scores otherwise
	w := newWard(t, client, httpapi.Config{})
	ctx, shard := redistest.Soon(t), link.Of(w.tr).Scripts.Shard(w.slot)
	redistest.Must(t, client.ZAdd(ctx, shard.Key("parked"), redis.Z{Score: 4e14, Member: "1"}).Err())
	redistest.Must(t, client.HSet(ctx, shard.Key("pauses"), "bank", `{"who":"eve","why":"x","since":"900000000000000000","until":"900000000000000000"}`).Err())
	redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: shard.Key("audit"), ID: "900000000000000000-1", Values: []string{"operation", "x", "who", "eve", "act", "y"}}).Err())
	for _, path := range []string{
		"/api/parked", "/api/event?slot=" + strconv.Itoa(w.slot) + "&id=1", "/api/find?id=1", "/api/destinations", "/api/audit", "/api/drain", "/api/stats",
		"/", "/parked", "/event?slot=" + strconv.Itoa(w.slot) + "&id=1", "/audit",
	} {
		if reply := answer(w.handler, asked(t, http.MethodGet, path, "")); reply.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, reply.Code, reply.Body)
		}
	}
}

func TestRearmChecksDestinationsWithTheHook(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		w := newWard(t, client, httpapi.Config{}) // its operator rejects the destination forbidden
		const all = `{"filter":{"class":"none"},"destination":%q,"dry_run":%v}`
		for _, dry := range []bool{true, false} {
			replied[any](t, w.handler, http.MethodPost, "/api/parked/rearm", fmt.Sprintf(all, "forbidden", dry), http.StatusForbidden)
		}
		replied[any](t, w.handler, http.MethodPost, "/api/parked/rearm", fmt.Sprintf(all, "elsewhere", true), http.StatusOK)
		if reply := answer(w.handler, asked(t, http.MethodGet, "/preview-rearm?class=http_422&to=forbidden", "")); reply.Code != http.StatusForbidden {
			t.Errorf("the console previews a forbidden destination: %d", reply.Code)
		}
		op, open := handlerOf(t, w.tr, client, httpapi.Config{}) // without a hook
		replied[any](t, open, http.MethodPost, "/api/parked/rearm", fmt.Sprintf(all, "elsewhere", true), http.StatusForbidden)
		if page := answer(open, asked(t, http.MethodGet, "/preview-rearm?class=http_422", "")).Body.String(); strings.Contains(page, "another destination") {
			t.Error("the console offers another destination")
		}
		_, err := op.Outbox().RearmAll(redistest.Soon(t), outbox.Filter{Class: "none"}, outbox.RearmOptions{Destination: "elsewhere"})
		redistest.Must(t, err)
		checked := admintest.Operator(t, client, w.tr)
		_, err = checked.Outbox().RearmAll(redistest.Soon(t), outbox.Filter{Class: "none"}, outbox.RearmOptions{Destination: "forbidden"})
		if !errors.Is(err, outbox.ErrDestination) {
			t.Errorf("RearmAll to a forbidden destination: %v", err)
		}
	})
}

// basic is the header of a password.
func basic(secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+secret))
}
