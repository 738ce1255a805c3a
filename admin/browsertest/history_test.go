package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
)

func TestThreeClicksShowWhatHappenedLastNightWithoutJavaScript(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newService(t, 1000)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open(s.address)
	b.click("nav.main a", "History")
	b.at("/history")
	b.click(".chips a", "24 hours")
	b.at("range=day")
	if paths := b.text(`document.querySelectorAll("#charts svg path:not(.rule)[d^=M]").length`); paths != "9" {
		t.Errorf("%s lines are drawn, want 9", paths)
	}
	b.click("#intervals a", s.outage.Format("2006-01-02 15:04"))
	b.at("at=")
	page := b.text(`document.querySelector("main").innerText`)
	for _, want := range []string{"http_503", "bank", "12 min 34 s", "9,000", "luatx history --at " + s.outage.Format("2006-01-02T15:04:05Z")} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
}
