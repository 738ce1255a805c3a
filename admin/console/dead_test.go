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

func TestConsolePutsBackAndDiscardsOnlyPreviewedDeadLetters(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		_, op := admintest.Service(t, client, 1)
		key := "{" + redistest.Tag(t) + "}:orders"
		admintest.DeadLetters(t, client, key, "billing", "no such bank", 60)
		admintest.DeadLetters(t, client, key, "mails", "no such box", 2)
		s := newSite(t, op, nil)
		at := "stream=" + url.QueryEscape(key)
		if _, page := s.get(t, "streams?key="+url.QueryEscape(key)); !strings.Contains(page, "62 dead letters") || !strings.Contains(page, `href="./dead?stream=`) {
			t.Errorf("page of streams does not link to the 62 dead letters:\n%s", page)
		}
		_, list := s.get(t, "dead?"+at)
		if strings.Count(list, `type="checkbox" name="id"`) != 50 || !strings.Contains(list, `id="next"`) || !strings.Contains(list, "no such bank") {
			t.Errorf("list is not the first page of 50 dead letters:\n%s", list)
		}
		if _, list := s.get(t, "dead?group=mails&"+at); strings.Count(list, `type="checkbox" name="id"`) != 2 || strings.Contains(list, "no such bank") {
			t.Errorf("list of the group mails does not have its 2 dead letters only:\n%s", list)
		}

		_, page := s.get(t, "preview-retry-dead?text=bank&"+at)
		form := formOf(page, `action="./retry-dead"`)
		sentence := "Put back 60 dead letters of " + key + ", whose error contains “bank”; 10 first"
		if form.Get("confirm") != sentence || form.Get("canary") != "10" {
			t.Fatalf("confirmation of the preview = %q, form %v", form.Get("confirm"), form)
		}
		for name, change := range map[string]func(url.Values){
			"not confirmed": func(f url.Values) { f.Del("confirm") }, "larger count": func(f url.Values) { f.Set("count", "62") },
			"no filter": func(f url.Values) { f.Del("text") }, "no canary": func(f url.Values) { f.Set("canary", "0") },
			"no reason": func(f url.Values) { f.Del("reason") },
		} {
			changed := formOf(page, `action="./retry-dead"`)
			changed.Set("reason", "mended")
			change(changed)
			status, answer, location := s.post(t, "retry-dead", changed)
			if status != http.StatusOK || location != "" || !strings.Contains(answer, "Nothing has changed yet") || len(deadLetters(t, op, key)) != 62 {
				t.Errorf("%s: status %d, location %q; want a new preview", name, status, location)
			}
		}
		form.Set("canary", "0") // no group reads the stream
		form.Set("reason", "mended")
		_, page, _ = s.post(t, "retry-dead", form)
		form = formOf(page, `action="./retry-dead"`)
		form.Set("reason", "mended")
		status, _, location := s.post(t, "retry-dead", form)
		if status != http.StatusSeeOther || !strings.HasPrefix(location, sitePrefix+"operations/") {
			t.Fatalf("status %d, location %q:\n%s", status, location, page)
		}
		redistest.Eventually(t, "the operation to end", func() bool {
			_, page := s.get(t, location)
			return strings.Contains(page, "<strong>done</strong>") && strings.Contains(page, "60 done")
		})
		if n := client.XLen(t.Context(), key).Val(); n != 60 {
			t.Errorf("%d entries are back in the stream, want 60", n)
		}

		left := deadLetters(t, op, key)
		_, page, _ = s.post(t, "preview-discard-dead", url.Values{"stream": {key}, "id": {left[1].ID}})
		form = formOf(page, `action="./discard-dead"`)
		form.Set("reason", "late")
		if _, page, _ := s.post(t, "discard-dead", form); !strings.Contains(page, "tick the checkbox") {
			t.Errorf("discard without the checkbox does not show a new preview:\n%s", page)
		}
		form.Set("sure", "yes")
		if status, page, location = s.post(t, "discard-dead", form); status != http.StatusSeeOther {
			t.Fatalf("status %d, want %d:\n%s", status, http.StatusSeeOther, page)
		}
		// The audit records the discard after the deletion, so wait for the end of the operation.
		redistest.Eventually(t, "the discard operation to end", func() bool {
			_, page := s.get(t, location)
			return strings.Contains(page, "<strong>done</strong>")
		})
		if now := deadLetters(t, op, key); len(now) != 1 || now[0].ID != left[0].ID {
			t.Errorf("dead letters after the discard: %+v, want only %s", now, left[0].ID)
		}
		// A stream outside the keyspace has an audit of its own; the keyspace gets its copy right after.
		redistest.Eventually(t, "the audit to have both acts", func() bool {
			_, page := s.get(t, "audit")
			return strings.Contains(html.UnescapeString(page), `mended: text="bank"`) && strings.Contains(page, "late: 1 ids")
		})
	})
}

func TestConsoleShowsDeadLettersAndTheirBodiesOnRequest(t *testing.T) {
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
			t.Errorf("page of a dead letter:\n%s", page)
		}
		if _, page := s.get(t, at+"&body=1"); !strings.Contains(page, "4111") {
			t.Errorf("page does not show the body on request:\n%s", page)
		}
		if status, _ := s.get(t, "letter?stream="+url.QueryEscape(key)+"&id=-"); status != http.StatusUnprocessableEntity {
			t.Errorf("id -: status %d, want %d", status, http.StatusUnprocessableEntity)
		}
		if status, page := s.get(t, "dead?stream=nobody"); status != http.StatusOK || !strings.Contains(page, "This stream does not exist") {
			t.Errorf("unknown stream: status %d\n%s", status, page)
		}
		if n := client.XLen(t.Context(), stream.DeadLetterKey(key)).Val(); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
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
			t.Errorf("list does not link to the import:\n%s", page)
		}
		var lines strings.Builder
		_, err := op.DeadLetters(key).Export(redistest.Soon(t), &lines, admin.DeadLetterFilter{})
		redistest.Must(t, err)
		first := deadLetters(t, op, key)[0].ID
		_, err = op.DeadLetters(key).Discard(redistest.Soon(t), admin.DeadLetterFilter{IDs: []string{first}}, "r", admin.DeadLetterOptions{})
		redistest.Must(t, err)

		if _, page := s.get(t, "import-dead?"+at); !strings.Contains(page, `type="file"`) || !strings.Contains(page, `enctype="multipart/form-data"`) {
			t.Errorf("import page has no form for a file:\n%s", page)
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
		if form := formOf(page, `action="./import-dead"`); form.Get("confirm") != sentence || !strings.Contains(page, "2 already exist") ||
			!strings.Contains(html.UnescapeString(page), "luatx dead import --reason '…' --yes -- '"+key+"' dead.ndjson") {
			t.Fatalf("confirmation of the preview = %q:\n%s", form.Get("confirm"), page)
		}
		good := url.Values{"stream": {key}, "lines": {lines.String()}, "reason": {"again"}, "confirm": {sentence}}
		for name, value := range map[string]string{"confirm": "Import 3 dead letters of " + key, "reason": "", "lines": ""} {
			form := maps.Clone(good)
			form[name] = []string{value}
			if status, page, location := send("import-dead", form, ""); status != http.StatusOK || location != "" || len(deadLetters(t, op, key)) != 2 {
				t.Errorf("wrong %s: status %d, location %q:\n%s", name, status, location, page)
			}
		}
		for lines, want := range map[string]string{"x": "line 1", `{"stream":"other","fields":["a","b"]}`: "line 1: the stream"} {
			if status, page, _ := send("preview-import-dead", url.Values{"stream": {key}, "lines": {lines}}, ""); status != http.StatusUnprocessableEntity || !strings.Contains(page, want) {
				t.Errorf("lines %s: status %d; want an error with %q:\n%s", lines, status, want, page)
			}
		}
		if status, _, _ := send("preview-import-dead", url.Values{"stream": {key}}, strings.Repeat("x", 2<<20)); status != http.StatusRequestEntityTooLarge {
			t.Errorf("body of 2 MB: status %d, want %d", status, http.StatusRequestEntityTooLarge)
		}
		status, page, location := send("import-dead", good, "")
		if status != http.StatusSeeOther || !strings.HasPrefix(location, sitePrefix+"operations/") {
			t.Fatalf("status %d, location %q:\n%s", status, location, page)
		}
		redistest.Eventually(t, "the import to end", func() bool {
			_, page := s.get(t, location)
			return strings.Contains(page, "<strong>done</strong>") && strings.Contains(page, "1 done")
		})
		if n := len(deadLetters(t, op, key)); n != 3 {
			t.Errorf("%d dead letters after the import, want 3", n)
		}
		if _, page, _ := send("preview-import-dead", good, ""); !strings.Contains(page, "All 3 dead letters already exist") {
			t.Errorf("preview of a second import:\n%s", page)
		}
		if _, page := s.get(t, "audit"); !strings.Contains(page, "again") || !strings.Contains(page, "import") {
			t.Errorf("audit does not record the import:\n%s", page)
		}
	})
}
