package console_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestBlockedKeysAreOnTheOverviewAndOnAPageThatReArms(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		s := newSite(t, op, nil)
		slot := admintest.Block(t, tr, "a", admintest.Hostile, "head", "1", "2", "3")
		admintest.Block(t, tr, "b", "quiet", "alone")
		shows := func(to string, wants ...string) {
			t.Helper()
			status, page := s.get(t, to)
			if status != http.StatusOK {
				t.Errorf("%s: status %d", to, status)
			}
			for _, want := range wants {
				if !strings.Contains(page, want) {
					t.Errorf("%s does not contain %q:\n%s", to, want, page)
				}
			}
			if strings.Contains(page, admintest.Hostile) {
				t.Errorf("%s contains unescaped markup of an event", to)
			}
		}
		shows("", "3 events are held back", "1 ordering key is blocked", `blocked">See behind which</a>`)
		shows("blocked", "head", "Wait behind it", "&lt;script&gt;", `<td data-label="Wait behind it" class="n">3</td>`, "Re-arm selected…")
		shows("blocked?class=none", "No blocked key matches")
		at := strconv.Itoa(slot)
		shows("event?slot="+at+"&id=3", "Waits behind", ">head</a>")
		shows("event?slot="+at+"&id=head", "Holds back", "3 events with the same ordering key")
		status, page, _ := s.post(t, "preview-rearm", url.Values{"event": {at + ":head"}})
		if status != http.StatusOK || !strings.Contains(page, "1 event") {
			t.Errorf("preview: status %d\n%s", status, page)
		}
		s.access = httpapi.MayView
		if _, page := s.get(t, "blocked"); strings.Contains(page, "Re-arm") {
			t.Error("page offers a re-arm to a reader without the right to retry")
		}
	})
}
