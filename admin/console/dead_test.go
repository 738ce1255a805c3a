package console_test

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/stream"
)

// deadLetters lists the dead letters of a stream.
func deadLetters(t testing.TB, op *admin.Operator, key string) []admin.DeadLetter {
	t.Helper()
	var all []admin.DeadLetter
	for l, err := range op.DeadLetters(key).List(redistest.Soon(t), admin.DeadLetterFilter{}) {
		redistest.Must(t, err)
		all = append(all, l)
	}
	return all
}

func TestConsolePutsBackAndDiscardsOnlyTheDeadLettersOfItsPreview(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		_, op := admintest.Service(t, client, 1)
		key := "{" + redistest.Tag(t) + "}:orders"
		admintest.DeadLetters(t, client, key, "billing", "no such bank", 60)
		admintest.DeadLetters(t, client, key, "mails", "no such box", 2)
		s := newSite(t, op, nil)
		at := "stream=" + url.QueryEscape(key)
		if _, page := s.get(t, "streams?key="+url.QueryEscape(key)); !strings.Contains(page, "62 dead letters") || !strings.Contains(page, `href="./dead?stream=`) {
			t.Errorf("the streams:\n%s", page)
		}
		_, list := s.get(t, "dead?"+at)
		if strings.Count(list, `type="checkbox" name="id"`) != 50 || !strings.Contains(list, `id="next"`) || !strings.Contains(list, "no such bank") {
			t.Errorf("the list:\n%s", list)
		}
		if _, list := s.get(t, "dead?group=mails&"+at); strings.Count(list, `type="checkbox" name="id"`) != 2 || strings.Contains(list, "no such bank") {
			t.Errorf("of a group:\n%s", list)
		}

		_, page := s.get(t, "preview-retry-dead?text=bank&"+at)
		form := formOf(page, `action="./retry-dead"`)
		sentence := "Put back 60 dead letters of " + key + ", whose error says “bank”; 20 first"
		if form.Get("confirm") != sentence || form.Get("canary") != "20" {
			t.Fatalf("the preview asks for %q with %v", form.Get("confirm"), form)
		}
		for name, change := range map[string]func(url.Values){
			"not confirmed": func(f url.Values) { f.Del("confirm") }, "more": func(f url.Values) { f.Set("count", "62") },
			"no filter": func(f url.Values) { f.Del("text") }, "no canary": func(f url.Values) { f.Set("canary", "0") },
			"no reason": func(f url.Values) { f.Del("reason") },
		} {
			changed := formOf(page, `action="./retry-dead"`)
			changed.Set("reason", "mended")
			change(changed)
			status, answer, location := s.post(t, "retry-dead", changed)
			if status != http.StatusOK || location != "" || !strings.Contains(answer, "Nothing has happened yet") || len(deadLetters(t, op, key)) != 62 {
				t.Errorf("%s: %d to %q", name, status, location)
			}
		}
		form.Set("canary", "0") // because no group reads
		form.Set("reason", "mended")
		_, page, _ = s.post(t, "retry-dead", form)
		form = formOf(page, `action="./retry-dead"`)
		form.Set("reason", "mended")
		status, _, location := s.post(t, "retry-dead", form)
		if status != http.StatusSeeOther || !strings.HasPrefix(location, sitePrefix+"operations/") {
			t.Fatalf("%d to %q:\n%s", status, location, page)
		}
		redistest.Eventually(t, "the work to be done", func() bool {
			_, page := s.get(t, location)
			return strings.Contains(page, "<strong>done</strong>") && strings.Contains(page, "60 done")
		})
		if n := client.XLen(t.Context(), key).Val(); n != 60 {
			t.Errorf("%d entries are back", n)
		}

		left := deadLetters(t, op, key)
		_, page, _ = s.post(t, "preview-discard-dead", url.Values{"stream": {key}, "id": {left[1].ID}})
		form = formOf(page, `action="./discard-dead"`)
		form.Set("reason", "late")
		if _, page, _ := s.post(t, "discard-dead", form); !strings.Contains(page, "say that you are sure") {
			t.Errorf("nobody was asked:\n%s", page)
		}
		form.Set("sure", "yes")
		if status, page, _ = s.post(t, "discard-dead", form); status != http.StatusSeeOther {
			t.Errorf("%d:\n%s", status, page)
		}
		redistest.Eventually(t, "one to be discarded", func() bool { return len(deadLetters(t, op, key)) == 1 })
		if now := deadLetters(t, op, key); now[0].ID != left[0].ID {
			t.Errorf("another one is left: %+v", now[0])
		}
		if _, page := s.get(t, "audit"); !strings.Contains(html.UnescapeString(page), `mended: text="bank"`) || !strings.Contains(page, "late: 1 ids") {
			t.Errorf("the audit:\n%s", page)
		}
	})
}

func TestConsoleShowsDeadLettersAndTheirDataWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		_, op := admintest.Service(t, client, 1)
		key := "{" + redistest.Tag(t) + "}:orders"
		admintest.DeadLetters(t, client, key, "g", "the bank says "+admintest.Hostile, 1)
		s := newSite(t, op, nil)
		at := "letter?stream=" + url.QueryEscape(key) + "&id=" + deadLetters(t, op, key)[0].ID
		_, page := s.get(t, at)
		if strings.Contains(page, "4111") || !strings.Contains(page, "delivery 3") || strings.Contains(page, admintest.Hostile) ||
			!strings.Contains(html.UnescapeString(page), "luatx dead retry --reason '…' --yes -- '"+key+"'") {
			t.Errorf("one dead letter:\n%s", page)
		}
		if _, page := s.get(t, at+"&body=1"); !strings.Contains(page, "4111") {
			t.Errorf("its data:\n%s", page)
		}
		if status, _ := s.get(t, "letter?stream="+url.QueryEscape(key)+"&id=-"); status != http.StatusUnprocessableEntity {
			t.Errorf("an id that means all: %d", status)
		}
		if status, page := s.get(t, "dead?stream=nobody"); status != http.StatusOK || !strings.Contains(page, "No stream has this name") {
			t.Errorf("an unknown stream: %d", status)
		}
		if n := client.XLen(t.Context(), stream.DeadLetterKey(key)).Val(); n != 1 {
			t.Errorf("%d dead letters", n)
		}
	})
}
