package console_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/outbox"
)

// TestConsoleProposesACanary checks that it does if the filter selects more events than a canary has.
func TestConsoleProposesACanary(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		for i := range 11 {
			enqueue(t, tr, "a"+strconv.Itoa(i%5), "bad"+strconv.Itoa(i), "http_409", "bank", `{}`)
		}
		for i := range 10 {
			enqueue(t, tr, "a"+strconv.Itoa(i%5), "worse"+strconv.Itoa(i), "http_422", "bank", `{}`)
		}
		parkAs(t, tr, 21)
		s := newSite(t, op, nil)
		for class, want := range map[string]string{"http_409": "10", "http_422": "0"} {
			_, page := s.get(t, "preview-rearm?class="+class)
			if got := formOf(page, `action="./rearm"`).Get("canary"); got != want {
				t.Errorf("class %s: canary = %q, want %s", class, got, want)
			}
		}
	})
}

// withThreeParked returns a service with one shard, which has three parked events.
func withThreeParked(t testing.TB) (redis.UniversalClient, *luatx.Transactor, *admin.Operator) {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	tr, op := admintest.Service(t, client, 1)
	for i := range 3 {
		enqueue(t, tr, "a", strconv.Itoa(i), "http_422", "bank", `{}`)
	}
	parkAs(t, tr, 3)
	return client, tr, op
}

// TestPreviewShowsAnErrorOrEveryEvent refuses one command of a preview after the other.
func TestPreviewShowsAnErrorOrEveryEvent(t *testing.T) {
	t.Parallel()
	client, _, op := withThreeParked(t)
	for n, failed := 1, 0; ; n++ {
		refuser := rig.Refuse(client)
		s := newSite(t, op, nil)
		refuser.Arm(n)
		status, page := s.get(t, "preview-rearm?older_than=0s")
		refused := refuser.Disarm()
		if status == http.StatusOK && !strings.Contains(page, "<strong>3 events</strong>") {
			t.Errorf("without %s: status 200, %s", refused, page)
		}
		if refused == "" {
			if failed == 0 || status != http.StatusOK {
				t.Errorf("status %d without a refusal, %d previews failed", status, failed)
			}
			return
		}
		if status != http.StatusOK {
			failed++
		}
	}
}

// TestPreviewOfManyEventsCountsThoseWithBodies has a shard that says that it has many. To count them by destination would read every
// body.
func TestPreviewOfManyEventsCountsThoseWithBodies(t *testing.T) {
	t.Parallel()
	client, tr, op := withThreeParked(t)
	slot := tr.Keyspace().Slots()[0]
	_, err := op.Outbox().Erase(redistest.Soon(t), slot, "asked to", "1")
	redistest.Must(t, err)
	redistest.Must(t, client.HIncrBy(redistest.Soon(t), link.Of(tr).Scripts.Shard(slot).Key("parked:by"), "c:http_422", 20_000).Err())
	s := newSite(t, op, nil)
	_, page := s.get(t, "preview-rearm?older_than=0s")
	for _, want := range []string{"<strong>2 events</strong>", "One more matching event has an erased body", "By class"} {
		if !strings.Contains(page, want) {
			t.Errorf("the preview lacks %q", want)
		}
	}
	if strings.Contains(page, "By destination") {
		t.Error("the preview counts by destination")
	}
}

func TestConsoleRearmsOnlyEventsOfItsPreview(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		for i := range 30 {
			enqueue(t, tr, "a"+strconv.Itoa(i%5), "bad"+strconv.Itoa(i), "http_422", "bank", `{}`)
		}
		enqueue(t, tr, "a1", "other", "http_500", "bank", `{}`)
		parkAs(t, tr, 31)
		s := newSite(t, op, nil)
		parkedNow := func() int64 {
			c, err := op.Outbox().Counts(redistest.Soon(t))
			redistest.Must(t, err)
			return c.Parked
		}
		_, list := s.get(t, "parked?class=http_422")
		if !strings.Contains(list, `href="./preview-rearm?class=http_422"`) || strings.Contains(list, "other") {
			t.Fatalf("list of the class http_422 has no link to its preview, or shows another event:\n%s", list)
		}
		_, page := s.get(t, "preview-rearm?class=http_422")
		form := formOf(page, `action="./rearm"`)
		sentence := "Re-arm 30 events of class http_422; 10 first; at most 500 per second; stop when more than 10 park again"
		if form.Get("confirm") != sentence || form.Get("canary") != "10" || !strings.Contains(page, ">"+sentence+"</button>") {
			t.Fatalf("confirmation of the preview = %q, form %v", form.Get("confirm"), form)
		}

		// An operation without confirmation, or other than the shown one, has no effect.
		for name, change := range map[string]func(url.Values){
			"not confirmed": func(f url.Values) { f.Del("confirm") },
			"larger count":  func(f url.Values) { f.Set("count", "31") },
			"no filter":     func(f url.Values) { f.Del("class") },
			"no canary":     func(f url.Values) { f.Set("canary", "0") },
			"destination":   func(f url.Values) { f.Set("to", "other") },
			"no rate":       func(f url.Values) { f.Set("rate", "") },
		} {
			changed := formOf(page, `action="./rearm"`)
			change(changed)
			status, answer, location := s.post(t, "rearm", changed)
			if status != http.StatusOK || location != "" || !strings.Contains(answer, "Nothing has changed yet") || parkedNow() != 31 {
				t.Errorf("%s: status %d, location %q, %d events parked; want a new preview and 31", name, status, location, parkedNow())
			}
		}

		// There is no canary, because no relay runs. The changed form needs a second preview.
		form.Set("canary", "0")
		_, page, _ = s.post(t, "rearm", form)
		status, _, location := s.post(t, "rearm", formOf(page, `action="./rearm"`))
		if status != http.StatusSeeOther || !strings.HasPrefix(location, sitePrefix+"operations/") {
			t.Fatalf("status %d, location %q:\n%s", status, location, page)
		}
		if _, page := s.get(t, location); !strings.Contains(page, `http-equiv="refresh"`) {
			t.Error("page of a running operation does not reload without JavaScript")
		}
		if _, page := s.get(t, "parked"); strings.Contains(page, `http-equiv="refresh"`) {
			t.Error("page with a selection reloads itself")
		}
		redistest.Eventually(t, "the operation to end", func() bool {
			_, page := s.get(t, location)
			return strings.Contains(page, "<strong>done</strong>") && strings.Contains(page, "30 done")
		})
		if n := parkedNow(); n != 1 {
			t.Errorf("%d events are parked, want 1", n)
		}
		if _, page := s.get(t, "audit"); !strings.Contains(page, "bob") || !strings.Contains(html.UnescapeString(page), `class="http_422"`) {
			t.Errorf("audit does not record the re-arm of bob:\n%s", page)
		}
		if _, page := s.get(t, "operations"); !strings.Contains(page, "Re-arm") || !strings.Contains(page, "bob") {
			t.Errorf("list of operations has no re-arm of bob:\n%s", page)
		}
	})
}

func TestConsoleRearmsAndDiscardsOnlySelectedEvents(t *testing.T) {
	t.Parallel()
	tr, op := admintest.Service(t, redistest.Shared(t).Client(t), 4)
	for _, id := range []string{"1", "2", "3"} {
		enqueue(t, tr, "a", id, "http_422", "bank", `{}`)
	}
	parkAs(t, tr, 3)
	s := newSite(t, op, nil)
	name := slotText(t, tr, "a") + ":"
	_, page, _ := s.post(t, "preview-rearm", url.Values{"event": {name + "1"}})
	form := formOf(page, `action="./rearm"`)
	if form.Get("confirm") != "Re-arm 1 event selected by id; at most 500 per second" || form.Get("event") != name+"1" {
		t.Fatalf("form of the preview: %v", form)
	}
	status, _, location := s.post(t, "rearm", form)
	if status != http.StatusSeeOther {
		t.Fatalf("status %d, want %d", status, http.StatusSeeOther)
	}
	redistest.Eventually(t, "the operation to end", func() bool { _, page := s.get(t, location); return strings.Contains(page, "<strong>done") })

	_, page, _ = s.post(t, "preview-discard", url.Values{"event": {name + "2"}})
	form = formOf(page, `action="./discard"`)
	for name, change := range map[string]func(url.Values){
		"no reason":     func(f url.Values) { f.Set("sure", "yes") },
		"not sure":      func(f url.Values) { f.Set("reason", "a test") },
		"not confirmed": func(f url.Values) { f.Set("sure", "yes"); f.Set("reason", "a test"); f.Del("confirm") },
	} {
		changed := formOf(page, `action="./discard"`)
		change(changed)
		if status, answer, _ := s.post(t, "discard", changed); status != http.StatusOK || !strings.Contains(answer, "Nothing has changed yet") {
			t.Errorf("%s: status %d; want a new preview", name, status)
		}
	}
	form.Set("sure", "yes")
	form.Set("reason", "a test")
	if status, _, location = s.post(t, "discard", form); status != http.StatusSeeOther {
		t.Fatalf("status %d, want %d", status, http.StatusSeeOther)
	}
	redistest.Eventually(t, "the operation to end", func() bool { _, page := s.get(t, location); return strings.Contains(page, "<strong>done") })
	states := map[string]outbox.State{}
	for _, id := range []string{"1", "2", "3"} {
		for e, err := range op.Find(redistest.Soon(t), id) {
			redistest.Must(t, err)
			states[id] = e.State
		}
	}
	if len(states) != 2 || states["1"] != outbox.Pending || states["3"] != outbox.Parked {
		t.Errorf("states by id: %v; want 1 pending, 2 gone and 3 parked", states)
	}
}

func TestConsolePausesAndResumesDestinationByForms(t *testing.T) {
	t.Parallel()
	_, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
	s := newSite(t, op, nil)
	for _, wrong := range []url.Values{{"destination": {"bank"}}, {"reason": {"why"}}, {"destination": {"bank"}, "reason": {"why"}, "for": {"ever"}}} {
		if status, _, _ := s.post(t, "pause", wrong); status < 400 {
			t.Errorf("form %v: status %d, want an error", wrong, status)
		}
	}
	status, _, location := s.post(t, "pause", url.Values{"destination": {"bank"}, "reason": {"its certificate"}, "for": {"1h"}})
	if status != http.StatusSeeOther || location != sitePrefix+"#pauses" {
		t.Fatalf("status %d, location %s", status, location)
	}
	if _, page := s.get(t, ""); !strings.Contains(page, "bob: its certificate") || !strings.Contains(page, "1 destination is paused") {
		t.Errorf("overview does not show the pause:\n%s", page)
	}
	if paused, err := op.Paused(redistest.Soon(t)); err != nil || len(paused) != 1 || paused[0].Until.IsZero() {
		t.Errorf("Paused() = %+v, %v; want one pause with an end", paused, err)
	}
	s.post(t, "resume", url.Values{"destination": {"bank"}})
	if _, page := s.get(t, ""); strings.Contains(page, "its certificate") {
		t.Errorf("overview still shows the pause after the resume:\n%s", page)
	}
}

func TestConsoleRearmsNoMoreThanItShowedWhenMoreArrive(t *testing.T) {
	t.Parallel()
	tr, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
	for i := range 5 {
		enqueue(t, tr, "a", "early"+strconv.Itoa(i), "http_422", "bank", `{}`)
	}
	parkAs(t, tr, 5)
	s := newSite(t, op, nil)
	_, page := s.get(t, "preview-rearm?class=http_422")
	form := formOf(page, `action="./rearm"`)
	for i := range 3 {
		enqueue(t, tr, "a", "late"+strconv.Itoa(i), "http_422", "bank", `{}`)
	}
	parkAs(t, tr, 8)
	status, _, location := s.post(t, "rearm", form)
	if status != http.StatusSeeOther {
		t.Fatalf("status %d, want %d", status, http.StatusSeeOther)
	}
	redistest.Eventually(t, "the operation to end", func() bool { _, page := s.get(t, location); return strings.Contains(page, "<strong>done") })
	if now, err := op.Outbox().Counts(redistest.Soon(t)); err != nil || now.Parked != 3 || now.Pending != 5 {
		t.Errorf("counts: %+v, %v; want 3 parked and 5 pending", now, err)
	}
}

var pres = regexp.MustCompile(`(?s)<pre id="(cli|curl)"[^>]*>(.*?)</pre>`)

func TestShellAndAPIAcceptTheCommandsThatTheConsoleShows(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("sh is not on PATH")
	}
	tr, op := admintest.Service(t, redistest.Shared(t).Client(t), 1)
	const id = `it's $(id) "1"`
	enqueue(t, tr, "a", id, "http_422", "the 'bank'", `{}`)
	parkAs(t, tr, 1)
	s := newSite(t, op, nil)
	slot := slotText(t, tr, "a")
	words := func(line string) []string {
		output, err := exec.CommandContext(t.Context(), sh, "-c", `luatx() { printf '%s\0' "$@"; }; curl() { luatx "$@"; }; `+line).Output()
		redistest.Must(t, err)
		return strings.Split(strings.TrimSuffix(string(output), "\x00"), "\x00")
	}
	for i, c := range []struct {
		page, api string
		cli       []string
		code      int
	}{
		{"preview-rearm?class=http_422&older_than=0s&destination=the+%27bank%27", "rearm", []string{
			"parked", "rearm", "--destination", "the 'bank'", "--class", "http_422", "--rate", "500", "--max-parked-again", "10", "--yes",
		}, http.StatusAccepted},
		{"preview-discard?event=" + slot + "%3A" + url.QueryEscape(id) + "&reason=it%27s+wrong", "discard", []string{
			"parked", "discard", "--event", slot + ":" + id, "--reason", "it's wrong", "--yes",
		}, http.StatusAccepted},
		{"preview-rearm?class=http_422&canary=1&canary_wait=5m", "rearm", []string{
			"parked", "rearm", "--class", "http_422", "--canary", "1", "--canary-wait", "5m0s", "--rate", "500", "--max-parked-again", "10", "--yes",
		}, http.StatusAccepted},
		{"preview-discard", "discard", []string{"parked", "discard", "--all", "--reason", "…", "--yes"}, http.StatusAccepted},
		{"event?slot=" + slot + "&id=" + url.QueryEscape(id), "rearm", []string{"parked", "rearm", "--event", slot + ":" + id, "--max-parked-again", "0", "--yes"}, http.StatusAccepted},
	} {
		if i > 0 { // the previous command has re-armed or discarded it
			enqueue(t, tr, "a", id, "http_422", "the 'bank'", `{}`)
			parkAs(t, tr, 1)
		}
		_, page := s.get(t, c.page)
		for _, found := range pres.FindAllStringSubmatch(page, -1) {
			got := words(html.UnescapeString(found[2]))
			if found[1] == "cli" {
				if !slices.Equal(got, c.cli) {
					t.Errorf("%s: command line %q, want %q", c.page, got, c.cli)
				}
				continue
			}
			address := "http://example.com" + sitePrefix + "api/parked/" + c.api
			if len(got) != 7 || !slices.Equal(got[:6], []string{"-X", "POST", address, "-H", "Content-Type: application/json", "-d"}) {
				t.Fatalf("%s: curl line %q", c.page, got)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, sitePrefix+"api/parked/"+c.api, strings.NewReader(got[6]))
			r.Header.Set("Content-Type", "application/json")
			if reply := s.ask(t, r); reply.Code != c.code {
				t.Errorf("%s: request %s: status %d, want %d: %s", c.page, got[6], reply.Code, c.code, reply.Body)
			}
			redistest.Eventually(t, "the event to be no longer parked", func() bool {
				now, err := op.Outbox().Counts(t.Context())
				return err == nil && now.Parked == 0
			})
		}
		if len(pres.FindAllString(page, -1)) != 2 {
			t.Errorf("%s has no command line and curl line:\n%s", c.page, page)
		}
	}
}
