package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/race"
	"github.com/luatx/luatx/internal/test/redistest"
)

// TestNestedBodiesCostNoMoreThanTheirSize measures all allocations of the process, so it does not run in parallel.
func TestNestedBodiesCostNoMoreThanTheirSize(t *testing.T) {
	redistest.Need(t)
	client := redistest.Shared(t).Client(t)
	tr, h := handler(t, client, httpapi.Config{})
	longest := 200 * time.Millisecond
	if race.On {
		longest *= 20
	}
	event := func(data string) []byte {
		return []byte(`{"specversion":"1.0","type":"sold","source":"/shop","datacontenttype":"application/json","id":"x","data":` + data + `}`)
	}
	for name, body := range map[string][]byte{
		"an event with 24 KB of nesting": event(strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)),
		"24 KB of nesting":               []byte(strings.Repeat("[", 24<<10)),
		"240 KB of nesting":              []byte(strings.Repeat("[", 240<<10)),
		"240 KB of objects":              []byte(strings.Repeat(`{"a":`, 48<<10)),
		"1 MB of nesting":                event(strings.Repeat("[", 1<<19) + strings.Repeat("]", 1<<19)),
		"1 MB of unclosed nesting":       []byte(strings.Repeat("[", 1<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			slot := strconv.Itoa(admintest.ParkEvent(t, tr, "a", luatx.Event{ID: name, Body: body}, "malformed", "nested"))
			for _, path := range []string{"/event?body=1&slot=", "/api/event?payload=1&slot="} {
				r := asked(t, http.MethodGet, path+slot+"&id="+strings.ReplaceAll(name, " ", "+"), "")
				answer(h, r) // the page's numbers are read once a second
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				began := time.Now()
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				took := time.Since(began)
				runtime.ReadMemStats(&after)
				if w.Code != http.StatusOK || took > longest || after.TotalAlloc-before.TotalAlloc > 100<<20 {
					t.Errorf("%s: status %d, %d bytes after %v, %d MB allocated", path, w.Code, w.Body.Len(), took, (after.TotalAlloc-before.TotalAlloc)>>20)
				}
			}
		})
	}
}
