package browsertest

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

func TestClassIsRearmedWithoutJavaScript(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newService(t, 50)
	s.mend("timeout")
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open(s.address)
	if hidden := b.text(`document.querySelector("#pause").hidden`); hidden != "true" {
		t.Error("the page without JavaScript offers elements that need it")
	}
	b.click("#reasons a", "timeout")
	b.at("parked?class=timeout")
	b.click("#rearm-all", "Re-arm all that match")
	b.at("preview-rearm")
	b.click("button[data-confirm]", "Re-arm 28 events of class timeout")
	b.at("/operations/")
	b.until("the page to load itself again, until the end", `document.querySelector("#state")?.innerText.toLowerCase().includes("done")`)
	redistest.Eventually(t, "the events to be published", func() bool { return s.published("timeout") == 28 })
	b.click("form[action$=theme] button", "Theme")
	b.until("the dark", `document.documentElement.dataset.theme === "dark" && location.href.includes("/operations/")`)
}

func TestExternalTextsRunAndLoadNothingInTheBrowser(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newService(t, 1000)
	const payload = `"'></title></textarea></pre><img src=x onerror="window.pwned=1"><script>window.pwned=1</script><svg onload="window.pwned=1">`
	body, err := message.NewTyped([]byte(`{"text":"<script>window.pwned=1</script>"}`), message.Attributes{
		"specversion": "1.0", "id": payload, "type": payload, "source": "/" + payload, "destination": payload, "subject": payload,
	}, nil).MarshalJSON()
	redistest.Must(t, err)
	s.mu.Lock()
	s.broken[payload+" "+payload] = class{name: payload, text: payload}
	s.mu.Unlock()
	_, err = s.tr.Enqueue(redistest.Soon(t), payload, luatx.Event{ID: payload, Key: payload, Body: body})
	redistest.Must(t, err)
	redistest.Eventually(t, "it to be parked", func() bool {
		for e, err := range s.store.Parked(t.Context(), outbox.Filter{IDs: []string{payload}}) {
			return err == nil && e.ID == payload
		}
		return false
	})
	quoted := url.PathEscape(payload)
	for _, page := range []string{
		"", "parked", "event?id=" + quoted, "parked?class=" + quoted + "&text=" + quoted + "&key=" + quoted, "preview-rearm?destination=" + quoted + "&to=" + quoted,
		"preview-discard?reason=" + quoted, "streams?key=" + quoted, "operations/" + quoted, "event?body=1&id=" + quoted,
	} {
		b.open(s.address + page)
		if page == "" {
			b.until("the live numbers to be read", `performance.getEntriesByType("resource").some((e) => e.initiatorType === "fetch")`)
		}
		if found := b.text(`window.pwned || document.querySelectorAll("img, iframe, script:not([src]), [onload], [onerror]").length`); found != "0" {
			t.Errorf("%s: %s", page, found)
		}
	}
	b.open(s.address + "parked")
	if page := b.text(`document.querySelector("main").innerText`); strings.Count(page, "window.pwned=1") < 3 {
		t.Errorf("the page does not show the text:\n%s", page)
	}
}
