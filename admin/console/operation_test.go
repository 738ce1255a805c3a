package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

func TestStoppedOperationSaysThatTheRestIsUnchanged(t *testing.T) {
	t.Parallel()
	_, _, op := withThreeParked(t)
	s := newSite(t, op, nil)
	_, page, _ := s.post(t, "preview-rearm", url.Values{"class": {"http_422"}, "canary": {"1"}}) // no relay publishes it
	status, page, location := s.post(t, "rearm", formOf(page, `action="./rearm"`))
	if status != http.StatusSeeOther {
		t.Fatalf("status %d, want %d:\n%s", status, http.StatusSeeOther, page)
	}
	redistest.Eventually(t, "the canary", func() bool { _, page := s.get(t, location); return strings.Contains(page, "The canary was re-armed") })
	id := strings.TrimPrefix(location, sitePrefix+"operations/")
	id, _, _ = strings.Cut(id, "?")
	s.post(t, "stop", url.Values{"id": {id}})
	redistest.Eventually(t, "the end of the operation", func() bool { _, page := s.get(t, location); return !strings.Contains(page, "Stop this operation") })
	_, page = s.get(t, location)
	_, list := s.get(t, "operations")
	for text, wants := range map[string][]string{
		page: {`class="notice warn"`, "<strong>stopped</strong>", "The operation was stopped after", "with 1 done. The rest is unchanged."},
		list: {`<span class="badge warn">stopped</span>`},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("page does not contain %q:\n%s", want, text)
			}
		}
	}
}
