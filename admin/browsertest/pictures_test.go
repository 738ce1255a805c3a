package browsertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/luatx/luatx/internal/test/redistest"
)

func TestPicturesOfTheConsolePageAreTaken(t *testing.T) {
	if os.Getenv("CONSOLE_PICTURES") == "" {
		t.Skip("CONSOLE_PICTURES=1 takes the pictures of docs/console.md")
	}
	b := newBrowser(t)
	s := newService(t, 1)
	quiet := newService(t, 1000)
	s.mend("timeout")
	b.look(1280, false)
	b.open(s.address + "preview-rearm?class=timeout")
	b.click("button[data-confirm]", "Re-arm")
	b.at("/operations/")
	b.until("half of it", `parseInt(document.querySelector("#figures").innerText.match(/Re-armed\s+([\d,]+)/)?.[1].replace(",", "")) > 600`)
	b.picture("operation-light")
	b.until("the end", `document.querySelector("#state").innerText.toLowerCase().includes("done")`)
	for _, look := range []struct {
		name  string
		width int64
		dark  bool
	}{{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 360, false}} {
		b.look(look.width, look.dark)
		b.open(s.address)
		b.until("charts", `document.querySelectorAll("#charts svg").length === 3`)
		b.picture("overview-" + look.name)
		b.open(quiet.address + "history?range=day")
		b.picture("history-" + look.name)
		b.open(s.address + "parked?class=http_422")
		b.picture("parked-" + look.name)
		b.open(s.address + "event?id=carrier-00042&body=1")
		b.open(b.text(`location.href`) + "&body=1")
		b.picture("event-" + look.name)
		if look.name == "light" {
			b.open(s.address + "preview-rearm?class=http_503")
			b.picture("preview-" + look.name)
		}
	}
}

// maxPicture is the maximum size of a picture in bytes.
const maxPicture = 160_000

func (b *tab) picture(name string) {
	b.t.Helper()
	if wide := b.text(`document.documentElement.scrollWidth > innerWidth`); wide != "false" {
		b.t.Errorf("%s: the page is wider than the window", name)
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	redistest.Must(b.t, err)
	if len(png) > maxPicture {
		b.t.Errorf("%s has %d bytes", name, len(png))
	}
	redistest.Must(b.t, os.WriteFile(filepath.Join("..", "..", "docs", "img", "console-"+name+".png"), png, 0o644))
}
