// Package console renders the web pages that an httpapi.Handler serves beside its API.
package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
)

// consoleFiles contains the templates, the style sheet, the script and the icon of the console.
//
//go:embed assets
var consoleFiles embed.FS

// ui is a console. The server renders its pages. JavaScript adds live numbers and shortcuts.
type ui struct {
	desk  *desk.Desk
	pages map[string]*template.Template
	// assets holds the style sheet, the script and the icon by their served names. A name contains a hash of the content.
	assets map[string][]byte
	names  map[string]string
	// glances holds the last glance. A goroutine that has received it may replace it.
	glances chan glance
}

// parsed returns the pages and assets. A process parses them once.
var parsed = sync.OnceValues(func() (*ui, error) {
	u := &ui{pages: map[string]*template.Template{}, assets: map[string][]byte{}, names: map[string]string{}}
	layout, err := template.New("layout.html").Option("missingkey=error").Funcs(consoleFuncs).ParseFS(consoleFiles, "assets/layout.html")
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(consoleFiles, "assets/*")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := consoleFiles.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := path.Base(file)
		if page, ok := strings.CutSuffix(name, ".html"); ok {
			copied, err := layout.Clone()
			if err != nil {
				return nil, err
			}
			if u.pages[page], err = copied.Parse(string(content)); err != nil {
				return nil, err
			}
			continue
		}
		sum := sha256.Sum256(content)
		u.names[name] = hex.EncodeToString(sum[:6]) + "-" + name
		u.assets[u.names[name]] = content
	}
	return u, nil
})

// New returns the pages of a console. Set it as httpapi.Config.Console.
func New(d *desk.Desk) (guard.Pages, error) {
	shared, err := parsed()
	if err != nil {
		return guard.Pages{}, fmt.Errorf("console: parse the templates: %w", err)
	}
	u := *shared
	u.desk, u.glances = d, make(chan glance, 1)
	u.glances <- glance{}
	return guard.Pages{Routes: u.routes(), Error: u.problem}, nil
}

func (u *ui) routes() []guard.Route {
	all := []guard.Route{
		{Pattern: "GET /static/{id}", Needs: guard.MayView, Do: u.asset},
		{Pattern: "GET /{$}", Needs: guard.MayView, Do: u.overview},
		{Pattern: "GET /history", Needs: guard.MayView, Do: u.history, Scans: true},
		{Pattern: "GET /help", Needs: guard.MayView, Do: u.help},
		{Pattern: "POST /theme", Needs: guard.MayView, Do: u.theme},
		{Pattern: "GET /parked", Needs: guard.MayView, Do: u.parked, Scans: true},
		{Pattern: "GET /blocked", Needs: guard.MayView, Do: u.blocked, Scans: true},
		{Pattern: "GET /event", Needs: guard.MayView, Do: u.event, Scans: true},
		{Pattern: "POST /rearm", Needs: guard.MayRetry, Do: u.rearm, Scans: true},
		{Pattern: "POST /discard", Needs: guard.MayPurge, Do: u.discard, Scans: true},
		{Pattern: "GET /dead", Needs: guard.MayView, Do: u.dead, Scans: true},
		{Pattern: "GET /letter", Needs: guard.MayView, Do: u.letter},
		{Pattern: "POST /retry-dead", Needs: guard.MayRetry, Do: u.retryDead, Scans: true},
		{Pattern: "POST /discard-dead", Needs: guard.MayPurge, Do: u.discardDead, Scans: true},
		{Pattern: "GET /import-dead", Needs: guard.MayPurge, Do: u.importForm},
		{Pattern: "POST /preview-import-dead", Needs: guard.MayPurge, Do: u.previewImport, Scans: true},
		{Pattern: "POST /import-dead", Needs: guard.MayPurge, Do: u.importDead, Scans: true},
		{Pattern: "GET /operations", Needs: guard.MayView, Do: u.operations},
		{Pattern: "GET /operations/{id}", Needs: guard.MayView, Do: u.operation},
		{Pattern: "POST /stop", Needs: guard.MayRetry, Do: u.stop},
		{Pattern: "POST /pause", Needs: guard.MayRetry, Do: u.pause},
		{Pattern: "POST /resume", Needs: guard.MayRetry, Do: u.resume},
		{Pattern: "GET /timers", Needs: guard.MayView, Do: u.timers, Scans: true},
		{Pattern: "GET /processes", Needs: guard.MayView, Do: u.processes, Scans: true},
		{Pattern: "GET /streams", Needs: guard.MayView, Do: u.streams, Scans: true},
		{Pattern: "GET /inbox", Needs: guard.MayView, Do: u.inbox},
		{Pattern: "POST /forget", Needs: guard.MayPurge, Do: u.forget},
		{Pattern: "GET /audit", Needs: guard.MayView, Do: u.audit, Scans: true},
		{Pattern: "GET /doctor", Needs: guard.MayView, Do: u.doctor, Scans: true},
	}
	for _, method := range []string{"GET", "POST"} { // a selection can have too many ids for an address; previews change nothing
		all = append(all,
			guard.Route{Pattern: method + " /preview-rearm", Needs: guard.MayRetry, Do: u.previewRearm, Scans: true},
			guard.Route{Pattern: method + " /preview-discard", Needs: guard.MayPurge, Do: u.previewDiscard, Scans: true},
			guard.Route{Pattern: method + " /preview-retry-dead", Needs: guard.MayRetry, Do: u.previewRetryDead, Scans: true},
			guard.Route{Pattern: method + " /preview-discard-dead", Needs: guard.MayPurge, Do: u.previewDiscardDead, Scans: true},
		)
	}
	all = append(all, u.eventRoutes()...)
	if !u.desk.NoRepair {
		all = append(all, guard.Route{Pattern: "POST /fix", Needs: guard.MayRetry, Do: u.fix})
	}
	for i := range all {
		all[i].Page = true
	}
	return all
}

func (u *ui) help(c *guard.Call) error { return u.show(c, "help", "Keys and help", nil) }

// asset serves the style sheet, the script and the icon. Browsers may cache them forever, because the name changes with the content.
func (u *ui) asset(c *guard.Call) error {
	content, ok := u.assets[c.R.PathValue("id")]
	if !ok {
		return &guard.Problem{Status: http.StatusNotFound, Title: "File not found", Detail: "The console has no such file. If you have just upgraded, reload the page."}
	}
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	c.W.Header().Set("Content-Type", types[path.Ext(c.R.PathValue("id"))])
	c.W.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = c.W.Write(content) // fails only if the client is gone
	return nil
}

// view is the data of a page.
type view struct {
	ui   *ui
	call *guard.Call
	base string
	name string

	Title, Notice string
	// Every is the refresh interval of the live parts in milliseconds, or 0 to disable refreshes.
	Every int
	// Reload makes browsers without JavaScript reload the page. Set it only on pages without input fields.
	Reload bool
	Body   any
}

// liveEvery is the refresh interval of live parts in milliseconds.
const liveEvery = 2000

// show renders a page after the functions have changed its view.
func (u *ui) show(c *guard.Call, name, title string, body any, change ...func(*view)) error {
	v := &view{ui: u, call: c, base: c.Base(), name: name, Title: title, Body: body}
	for _, f := range change {
		f(v)
	}
	return u.write(c, v, http.StatusOK)
}

// live makes the live parts of a page refresh. Pass it to show.
func live(v *view) { v.Every = liveEvery }

func (u *ui) write(c *guard.Call, v *view, status int) error {
	var page bytes.Buffer // buffered, so that an error can replace the page
	if err := u.pages[v.name].ExecuteTemplate(&page, "layout", v); err != nil {
		return fmt.Errorf("console: render page %s: %w", v.name, err)
	}
	c.W.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.W.WriteHeader(status)
	_, _ = page.WriteTo(c.W) // fails only if the client is gone
	return nil
}

// problem renders the page of an error.
func (u *ui) problem(c *guard.Call, p *guard.Problem) {
	v := &view{ui: u, call: c, base: c.Base(), name: "problem", Title: p.Title, Body: p}
	if err := u.write(c, v, p.Status); err != nil {
		http.Error(c.W, p.Title, p.Status)
	}
}

// Link returns a relative address within the console, with a query of names and values.
func (v *view) Link(to string, pairs ...string) string { return pageLink(v.base, to, pairs...) }

// Asset returns the address of a file.
func (v *view) Asset(name string) string { return v.base + "static/" + v.ui.names[name] }

// Site returns the title of the console.
func (v *view) Site() string { return cmp.Or(v.ui.desk.Title, "luatx") }

// Known reports whether the reader may see anything.
func (v *view) Known() bool { return v.call.Who.May >= guard.MayView }

// Who returns the reader's name.
func (v *view) Who() string { return v.call.Who.Name }

// May describes the rights of the reader.
func (v *view) May() string {
	words := "view"
	if v.CanRetry() {
		words += ", retry"
	}
	if v.CanPurge() {
		words += ", purge"
	}
	if v.CanRead() {
		words += ", payloads"
	}
	if words == "view" {
		return "view only"
	}
	return words
}

// CanRetry reports whether the reader may retry, re-arm, pause and repair.
func (v *view) CanRetry() bool { return v.call.Who.May >= guard.MayRetry }

// CanPurge reports whether the reader may discard and forget.
func (v *view) CanPurge() bool { return v.call.Who.May >= guard.MayPurge }

// CanRead reports whether the reader may see payloads and export events.
func (v *view) CanRead() bool { return v.call.Who.Payloads }

// Here returns the address of this page, relative to the mount point.
func (v *view) Here() string {
	if v.call.R.Method != http.MethodGet {
		return cmp.Or(v.call.R.PostForm.Get("here"), "parked")
	}
	here := strings.TrimPrefix(v.call.R.URL.EscapedPath(), "/")
	if v.call.R.URL.RawQuery != "" {
		here += "?" + v.call.R.URL.RawQuery
	}
	return here
}

// navigation is an entry of the menu.
type navigation struct {
	Name, Path, Key string
	Current         bool
}

// Nav returns the menu.
func (v *view) Nav() []navigation {
	menu := []navigation{
		{Name: "Overview", Path: "", Key: "o"},
		{Name: "History", Path: "history", Key: "h"},
		{Name: "Events", Path: "events", Key: "e"},
		{Name: "Parked", Path: "parked", Key: "p"},
		{Name: "Blocked", Path: "blocked", Key: "b"},
		{Name: "Processes", Path: "processes", Key: "r"},
		{Name: "Timers", Path: "timers", Key: "t"},
		{Name: "Streams", Path: "streams", Key: "s"},
		{Name: "Dead letters", Path: "dead", Key: "l"},
		{Name: "Inbox", Path: "inbox", Key: "i"},
		{Name: "Operations", Path: "operations", Key: "w"},
		{Name: "Audit", Path: "audit", Key: "a"},
		{Name: "Doctor", Path: "doctor", Key: "d"},
	}
	for i := range menu {
		menu[i].Current = menu[i].Path == v.name || menu[i].Path == "" && v.name == "overview"
	}
	return menu
}
