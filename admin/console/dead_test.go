package console_test

import (
	"bytes"
	"html"
	"maps"
	"mime/multipart"
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
		sentence := "Put back 60 dead letters of " + key + ", whose error says “bank”; 10 first"
		if form.Get("confirm") != sentence || form.Get("canary") != "10" {
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
		if status, page, location = s.post(t, "discard-dead", form); status != http.StatusSeeOther {
			t.Fatalf("%d:\n%s", status, page)
		}
		// The dead letter goes before the audit records it, so only the end of the operation says that both have happened.
		redistest.Eventually(t, "the discard operation to end", func() bool {
			_, page := s.get(t, location)
			return strings.Contains(page, "<strong>done</strong>")
		})
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

func TestConsoleImportsTheLinesOfAnExportAfterAPreview(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		_, op := admintest.Service(t, client, 1)
		key := "{" + redistest.Tag(t) + "}:orders"
		admintest.DeadLetters(t, client, key, "billing", "no such bank", 3)
		s, at := newSite(t, op, nil), "stream="+url.QueryEscape(key)
		if _, page := s.get(t, "dead?"+at); !strings.Contains(page, "./import-dead?stream=") {
			t.Errorf("the list leads to no import:\n%s", page)
		}
		var lines strings.Builder
		_, err := op.DeadLetters(key).Export(redistest.Soon(t), &lines, admin.DeadLetterFilter{})
		redistest.Must(t, err)
		first := deadLetters(t, op, key)[0].ID
		_, err = op.DeadLetters(key).Discard(redistest.Soon(t), admin.DeadLetterFilter{IDs: []string{first}}, "r", admin.DeadLetterOptions{})
		redistest.Must(t, err)

		if _, page := s.get(t, "import-dead?"+at); !strings.Contains(page, `type="file"`) || !strings.Contains(page, `enctype="multipart/form-data"`) {
			t.Errorf("the form:\n%s", page)
		}
		send := func(to string, form url.Values, file string) (int, string, string) {
			t.Helper()
			var body bytes.Buffer
			w := multipart.NewWriter(&body)
			for name, values := range form {
				redistest.Must(t, w.WriteField(name, values[0]))
			}
			if file != "" {
				part, err := w.CreateFormFile("file", "dead.ndjson")
				redistest.Must(t, err)
				_, err = part.Write([]byte(file))
				redistest.Must(t, err)
			}
			redistest.Must(t, w.Close())
			return s.send(t, to, w.FormDataContentType(), &body)
		}
		_, page, _ := send("preview-import-dead", url.Values{"stream": {key}}, lines.String())
		sentence := "Import 1 dead letter of " + key
		if form := formOf(page, `action="./import-dead"`); form.Get("confirm") != sentence || !strings.Contains(page, "2 exist already") ||
			!strings.Contains(html.UnescapeString(page), "luatx dead import --reason '…' --yes -- '"+key+"' dead.ndjson") {
			t.Fatalf("the preview asks for %q:\n%s", form.Get("confirm"), page)
		}
		good := url.Values{"stream": {key}, "lines": {lines.String()}, "reason": {"again"}, "confirm": {sentence}}
		for name, value := range map[string]string{"confirm": "Import 3 dead letters of " + key, "reason": "", "lines": ""} {
			form := maps.Clone(good)
			form[name] = []string{value}
			if status, page, location := send("import-dead", form, ""); status != http.StatusOK || location != "" || len(deadLetters(t, op, key)) != 2 {
				t.Errorf("without %s: %d to %q:\n%s", name, status, location, page)
			}
		}
		for lines, want := range map[string]string{"x": "line 1", `{"stream":"other","fields":["a","b"]}`: "line 1: its stream"} {
			if status, page, _ := send("preview-import-dead", url.Values{"stream": {key}, "lines": {lines}}, ""); status != http.StatusUnprocessableEntity || !strings.Contains(page, want) {
				t.Errorf("%s: %d:\n%s", lines, status, page)
			}
		}
		if status, _, _ := send("preview-import-dead", url.Values{"stream": {key}}, strings.Repeat("x", 2<<20)); status != http.StatusRequestEntityTooLarge {
			t.Errorf("2 MB: %d", status)
		}
		status, page, location := send("import-dead", good, "")
		if status != http.StatusSeeOther || !strings.HasPrefix(location, sitePrefix+"operations/") {
			t.Fatalf("%d to %q:\n%s", status, location, page)
		}
		redistest.Eventually(t, "the import to end", func() bool {
			_, page := s.get(t, location)
			return strings.Contains(page, "<strong>done</strong>") && strings.Contains(page, "1 done")
		})
		if n := len(deadLetters(t, op, key)); n != 3 {
			t.Errorf("%d dead letters", n)
		}
		if _, page, _ := send("preview-import-dead", good, ""); !strings.Contains(page, "All 3 dead letters exist already") {
			t.Errorf("a second import:\n%s", page)
		}
		if _, page := s.get(t, "audit"); !strings.Contains(page, "again") || !strings.Contains(page, "import") {
			t.Errorf("the audit:\n%s", page)
		}
	})
}
