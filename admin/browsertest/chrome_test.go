package browsertest

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) {
	if addrs := os.Getenv(relayAddrs); addrs != "" {
		runRelay(strings.Split(addrs, ","))
		return
	}
	redistest.Main(m)
}

// chromium returns the path of the browser. Without one, it skips the test, or fails it if LUATX_VERIFY requires all tests.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("LUATX_VERIFY") != "" {
		t.Fatal("no Chromium is on PATH, and CHROMIUM names none")
	}
	t.Skip("no Chromium is on PATH, and CHROMIUM names none: on Debian, apt-get install chromium")
	return ""
}

// tab is a page of a browser.
type tab struct {
	t   testing.TB
	ctx context.Context
}

// newBrowser starts a browser for this test, with one page.
func newBrowser(t testing.TB) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], //nolint:gocritic // an array's slice
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // outlives the test's context, so that the browser ends in order
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Log(err)
		}
		closeTab()
	})
	b := &tab{t, ctx}
	call(b, network.Enable, network.EnableParams{})
	call(b, runtime.Enable, cdp.Empty{})
	redistest.Must(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("a script of the page failed: %s", e.ExceptionDetails.Text)
		case *network.EventLoadingFailed:
			if e.BlockedReason != "" {
				t.Errorf("the browser blocked a request of the page: %s", e.BlockedReason)
			}
		}
	}))
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	redistest.Must(b.t, chromedp.Do(b.ctx, steps...))
}

// call runs a command of the browser's protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, command, params)
	redistest.Must(b.t, err)
}

// eval returns the value of an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	redistest.Must(b.t, err)
	return value
}

func (b *tab) text(expression string) string {
	b.t.Helper()
	return eval[string](b, "String("+expression+")")
}

// until waits for an expression to be true, in the page or in its successor.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(30 * time.Second)
	for {
		// During navigation there is no page to ask.
		so, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && so {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			b.t.Fatalf("%s: %v; the page at %s says:\n%s", what, err, b.text("location.href"), b.text("document.querySelector('main').innerText"))
		}
	}
}

// open opens an address.
func (b *tab) open(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address))
}

// at waits for a page whose address contains a text.
func (b *tab) at(part string) {
	b.t.Helper()
	quoted, _ := json.Marshal(part) // a string cannot fail
	b.until("the page "+part, `location.href.includes(`+string(quoted)+`) && document.readyState === "complete"`)
}

// click clicks the first element whose text contains the given one.
func (b *tab) click(selector, text string) {
	b.t.Helper()
	quoted, _ := json.Marshal([2]string{selector, text})
	at := eval[[]float64](b, `(([selector, text]) => {
		const element = [...document.querySelectorAll(selector)].find((e) => e.textContent.includes(text));
		if (!element) return [];
		element.scrollIntoView({block: "center", behavior: "instant"});
		const r = element.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})(`+string(quoted)+`)`)
	if len(at) != 2 {
		b.t.Fatalf("no %s says %q at %s", selector, text, b.text("location.href"))
	}
	b.do(chromedp.MouseClickXY(at[0], at[1]))
}

// press presses keys one after another.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.do(chromedp.KeyEvent(key))
	}
}

// tabTo presses the tab key until an element has the focus whose text, label or name contains the given text. It checks
// that the focus is visible.
func (b *tab) tabTo(text string) {
	b.t.Helper()
	for range 150 {
		b.press(kb.Tab)
		focused := b.text(`(() => {
			const e = document.activeElement, style = getComputedStyle(e);
			if (e !== document.body && (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2)) return "NO OUTLINE: " + e.outerHTML;
			return [e.textContent, e.getAttribute("aria-label"), e.name].join(" ");
		})()`)
		if strings.HasPrefix(focused, "NO OUTLINE") {
			b.t.Errorf("the focus cannot be seen: %.300s", focused)
		}
		if strings.Contains(focused, text) {
			return
		}
	}
	b.t.Fatalf("%q cannot be reached by the tab key at %s", text, b.text("location.href"))
}

// look sets the width of the page and whether the system uses a dark theme. A narrow window is high.
func (b *tab) look(width int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	height := int64(800)
	if width < 500 {
		height = 1250
	}
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}
