package browsertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/luatx/luatx/internal/test/redistest"
)

// The version of the checker, and the SHA-256 of its package.
const (
	axeVersion = "4.14.1"
	axeSum     = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
)

// axe returns the checker's script. npm downloads it once per machine. Without npm or a registry, it skips the test.
func axe(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	redistest.Must(t, err)
	dir := filepath.Join(cache, "luatx-browsertest")
	redistest.Must(t, os.MkdirAll(dir, 0o755))
	file := filepath.Join(dir, "axe-core-"+axeVersion+".tgz")
	archive, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		fetch := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", dir, "axe-core@"+axeVersion)
		fetch.Dir = dir
		if said, err := fetch.CombinedOutput(); err != nil {
			t.Skipf("cannot download axe-core %s: %v\n%s", axeVersion, err, said)
		}
		archive, err = os.ReadFile(file)
	}
	redistest.Must(t, err)
	if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("%s is not axe-core %s: its SHA-256 is %x", file, axeVersion, sum)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	redistest.Must(t, err)
	for files := tar.NewReader(unpacked); ; {
		header, err := files.Next()
		redistest.Must(t, err)
		if header.Name != "package/axe.min.js" {
			continue
		}
		script, err := io.ReadAll(files)
		redistest.Must(t, err)
		return string(script)
	}
}

// violation is a finding of the checker.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		Target         any
		FailureSummary string
	}
}

// nothing selects no rules.
const nothing = "nothing"

func TestPagesAreAccessibleInLightAndDarkAndNoWiderThanTheWindow(t *testing.T) {
	t.Parallel()
	script := axe(t)
	b := newBrowser(t)
	s := newService(t, 50)
	b.open(s.address + "event?id=archive-00001")
	event := b.text(`location.href`)
	b.open(s.address + "preview-rearm?class=too_large&canary=5&max_parked_again=0")
	b.click("button[data-confirm]", "Re-arm")
	b.at("/operations/")
	b.until("the end", `document.querySelector("#state").innerText.toLowerCase().includes("stopped")`)
	pages := []string{
		b.text(`location.href`), event, event + "&body=1", s.address, s.address + "parked", s.address + "parked?class=nothing", s.address + "event?id=nobody",
		s.address + "preview-rearm?class=tls", s.address + "preview-discard?class=tls", s.address + "operations", s.address + "streams", s.address + "processes", s.address + "timers",
		s.address + "history", s.address + "history?range=month", s.address + "history?at=" + s.outage.Format("15:04"), s.address + "history?at=2000-01-01",
		s.address + "inbox?aggregate=a&scope=shop%2Fh&id=1", s.address + "audit", s.address + "doctor?check=1", s.address + "help", s.address + "nowhere",
	}
	colours, shape := "color-contrast", nothing // dark and light pages differ only in their colors
	if os.Getenv("LUATX_VERIFY") != "" {
		colours, shape = "", ""
	}
	for _, page := range pages {
		b.look(1280, false)
		b.open(page)
		if page == s.address {
			b.until("charts", `document.querySelectorAll("#charts svg").length === 3`)
		}
		b.load(script)
		for _, look := range []struct {
			name  string
			width int64
			dark  bool
			rules string
		}{{"light", 1280, false, ""}, {"dark", 1280, true, colours}, {"narrow", 360, false, shape}} {
			b.look(look.width, look.dark)
			if wide := b.text(`document.documentElement.scrollWidth > innerWidth`); wide != "false" {
				t.Errorf("%s, %s: the page is wider than the window", page, look.name)
			}
			if look.rules != nothing {
				b.check(page+", "+look.name, look.rules)
			}
		}
	}
	b.open(s.address)
	b.press("?")
	b.until("the help", `document.querySelector("#keys").open`)
	b.load(script)
	b.check("the help", "")
}

// load loads the checker into the open page.
func (b *tab) load(script string) {
	b.t.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Evaluate[chromedp.Void](script+"; undefined"))
	redistest.Must(b.t, err)
}

// check runs the checker on the page that has loaded it, with some or all of its rules.
func (b *tab) check(what, rules string) {
	b.t.Helper()
	options := map[string]any{"resultTypes": []string{"violations"}}
	if rules != "" {
		options["runOnly"] = strings.Fields(rules)
	}
	how, err := json.Marshal(options)
	redistest.Must(b.t, err)
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`axe.run(document, `+string(how)+`).then((r) => JSON.stringify(r.violations))`,
		chromedp.EvalAwaitPromise))
	redistest.Must(b.t, err)
	var violations []violation
	redistest.Must(b.t, json.Unmarshal([]byte(found), &violations))
	for _, v := range violations {
		for _, node := range v.Nodes {
			b.t.Errorf("%s: %s (%s): %s: %v: %s", what, v.ID, v.Impact, v.Help, node.Target, node.FailureSummary)
		}
	}
}
