package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/luatx/luatx/internal/test/redistest"
)

const sentence = "Re-arm 1,429 events of class timeout; 10 first; at most 500 per second; stop when more than 10 park again"

// watch watches an operation to its end: it is never loaded again, and its numbers move all the same.
func (b *tab) watch(s *service, name string, events int) {
	b.t.Helper()
	b.at("/operations/")
	b.text(`window.stayed = true`)
	b.until("a number that moves", `/[1-9]/.test(document.querySelector("#figures").innerText) && document.querySelector("#state").innerText.toLowerCase().includes("running") || document.querySelector("#state").innerText.toLowerCase().includes("done")`)
	b.until("the end", `document.querySelector("#state").innerText.toLowerCase().includes("done") && document.querySelector("#figures").innerText.includes("1,429")`)
	if b.text(`window.stayed`) != "true" {
		b.t.Error("the page was reloaded")
	}
	if canary := b.text(`document.querySelector("#figures").innerText`); !strings.Contains(canary, "10 of 10") {
		b.t.Errorf("the page does not show the outcome of the canary:\n%s", canary)
	}
	redistest.Eventually(b.t, "the events to be published", func() bool { return s.published(name) == events })
	b.until("the number of the remaining events", `document.querySelector("#figures").innerText.includes("8,571")`)
}

func TestClassIsFoundPreviewedAndRearmedByMouse(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newService(t, 1)
	s.mend("timeout")
	b.open(s.address)
	b.until("the verdict", `document.querySelector("#verdict").innerText.includes("10,000 events are parked")`)
	b.click("#reasons a", "timeout")
	b.at("parked?class=timeout")
	b.click("#rearm-all", "Re-arm all that match")
	b.at("preview-rearm")
	if said := b.text(`document.querySelector("button[data-confirm]").textContent`); said != sentence {
		t.Fatalf("the text of the button is %q", said)
	}
	if page := b.text(`document.querySelector("main").innerText`); !strings.Contains(page, "ledger") || !strings.Contains(page, "--class timeout --canary 10") {
		t.Errorf("the preview is:\n%s", page)
	}
	if n := s.published("timeout"); n != 0 {
		t.Fatalf("%d events were published before the confirmation", n)
	}
	b.click("button[data-confirm]", "Re-arm 1,429")
	b.watch(s, "timeout", 1429)
	b.click("nav.main a", "Overview")
	b.until("the verdict", `document.querySelector("#verdict").innerText.includes("8,571 events are parked")`)
}

func TestClassIsRearmedByKeyboardUntilCanaryParksAgain(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newService(t, 1)
	s.mend("timeout")
	b.open(s.address)
	b.press(kb.Tab)
	if focused := b.text(`document.activeElement.textContent`); focused != "Skip to the content" {
		t.Errorf("the first focus is on %q", focused)
	}
	b.press("g", "p")
	b.at("/parked")
	b.tabTo("timeout")
	b.press(kb.Enter)
	b.at("class=timeout")
	b.tabTo("Re-arm all that match")
	b.press(kb.Enter)
	b.at("preview-rearm")
	b.tabTo(sentence)
	b.press(kb.Enter)
	b.watch(s, "timeout", 1429)

	// By keys alone, of a class that is still broken: the canary stops it.
	b.press("g", "p")
	b.at("/parked")
	b.tabTo("tls")
	b.press(kb.Enter)
	b.at("class=tls")
	b.press("r")
	b.at("preview-rearm")
	b.tabTo("max_parked_again")
	b.press("0") // the field is selected as a whole
	b.tabTo("Show preview")
	b.press(kb.Enter)
	b.until("the new sentence", `document.querySelector("button[data-confirm]")?.textContent.includes("more than 0 park again")`)
	b.tabTo("Re-arm 611 events")
	b.press(kb.Enter)
	b.at("/operations/")
	b.until("the canary to stop it", `document.querySelector("#state").innerText.includes("the canary parked again")`)
	if state := b.text(`document.querySelector("#state").innerText`); !strings.Contains(state, "tls") || !strings.Contains(state, "10 were re-armed") {
		t.Errorf("the operation shows:\n%s", state)
	}
	if n := s.published("tls"); n != 0 {
		t.Errorf("%d were published", n)
	}
}

func TestShortcutsSelectRowsShowHelpAndCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newService(t, 50)
	b.open(s.address + "parked?class=too_large")
	b.press("j", "j", "x", "k", "x")
	if n := b.text(`document.querySelectorAll("input[name=event]:checked").length`); n != "2" {
		t.Errorf("%s rows are selected", n)
	}
	b.press("s")
	b.at("preview-rearm")
	b.until("the preview of two", `document.querySelector("button[data-confirm]").textContent.startsWith("Re-arm 2 events selected by id")`)
	b.open(s.address + "parked?class=too_large")
	b.press("j", "o")
	b.at("event?")
	b.press("?")
	b.until("the help", `document.querySelector("#keys").open`)
	b.click("#keys label", "Keys work")
	b.press(kb.Escape)
	b.until("the end of the help", `!document.querySelector("#keys").open`)
	b.press("g", "o", "g", "p")
	if at := b.text("location.href"); !strings.Contains(at, "event?") {
		t.Errorf("a disabled shortcut leads to %s", at)
	}
	b.open(s.address)
	b.press("p")
	if state := b.text(`document.querySelector("#pause").textContent`); state != "Live: on" {
		t.Errorf("the state of the shortcuts is %q", state)
	}
	b.click("#pause", "Live")
	b.until("the pause", `document.querySelector("#pause").getAttribute("aria-pressed") === "true"`)
}
