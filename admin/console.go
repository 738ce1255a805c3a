package admin

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
)

// consoleFiles are the console's pages, its style and its script: all that it needs.
//
//go:embed console
var consoleFiles embed.FS

// ui is the console: pages that the server renders, and that JavaScript makes livelier.
type ui struct {
	h     *Handler
	pages map[string]*template.Template
	// assets are the style, the script and the icon by the names that they are served under, which change with them.
	assets map[string][]byte
	names  map[string]string
	// glances holds the last look, for who has the turn.
	glances chan glance
}

// parsed are the pages and assets, read once in a process.
var parsed = sync.OnceValues(func() (*ui, error) {
	u := &ui{pages: map[string]*template.Template{}, assets: map[string][]byte{}, names: map[string]string{}}
	layout, err := template.New("layout.html").Option("missingkey=error").Funcs(consoleFuncs).ParseFS(consoleFiles, "console/layout.html")
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(consoleFiles, "console/*")
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

// console registers the pages.
func (h *Handler) console(rs *routes) error {
	shared, err := parsed()
	if err != nil {
		return fmt.Errorf("admin: the console's pages: %w", err)
	}
	u := *shared
	u.h, u.glances = h, make(chan glance, 1)
	u.glances <- glance{}
	h.errorPage = u.problem
	scan := func(method, pattern string, needs Access, do func(*call) error) {
		rs.page(method, pattern, needs, do)
		rs.scanning()
	}
	rs.page("GET", "/static/{id}", MayView, u.asset)
	rs.page("GET", "/", MayView, u.overview)
	rs.page("GET", "/help", MayView, func(c *call) error { return u.show(c, "help", "Keys and help", nil) })
	rs.page("POST", "/theme", MayView, u.theme)
	scan("GET", "/parked", MayView, u.parked)
	scan("GET", "/event", MayView, u.event)
	for _, method := range []string{"GET", "POST"} { // neither changes anything; the ids of a selection are many for an address
		scan(method, "/preview-rearm", MayRetry, u.previewRearm)
		scan(method, "/preview-discard", MayPurge, u.previewDiscard)
	}
	scan("POST", "/rearm", MayRetry, u.rearm)
	scan("POST", "/discard", MayPurge, u.discard)
	rs.page("GET", "/operations", MayView, u.operations)
	rs.page("GET", "/operations/{id}", MayView, u.operation)
	rs.page("POST", "/stop", MayRetry, u.stop)
	rs.page("POST", "/pause", MayRetry, u.pause)
	rs.page("POST", "/resume", MayRetry, u.resume)
	scan("GET", "/streams", MayView, u.streams)
	rs.page("GET", "/inbox", MayView, u.inbox)
	rs.page("POST", "/forget", MayPurge, u.forget)
	scan("GET", "/audit", MayView, u.audit)
	scan("GET", "/doctor", MayView, u.doctor)
	if !h.cfg.NoRepair {
		rs.page("POST", "/fix", MayRetry, u.fix)
	}
	return nil
}

// asset serves the style, the script and the icon. Their names tell what is in them, so that they may be kept.
func (u *ui) asset(c *call) error {
	content, ok := u.assets[c.id]
	if !ok {
		return &problem{Status: http.StatusNotFound, Title: "There is no such file"}
	}
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	c.w.Header().Set("Content-Type", types[path.Ext(c.id)])
	c.w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = c.w.Write(content) // a reader that has left does not want it
	return nil
}

// view is what a page is made of.
type view struct {
	ui   *ui
	call *call
	base string
	name string

	Title, Notice string
	// Every is how often live parts are read again, in milliseconds; 0: never.
	Every int
	// Reload lets a browser without JavaScript load the page again: one on which nobody writes.
	Reload bool
	Body   any
}

// liveEvery is how often live parts are read again, in milliseconds.
const liveEvery = 2000

// show renders a page, changed by the functions given.
func (u *ui) show(c *call, name, title string, body any, change ...func(*view)) error {
	v := &view{ui: u, call: c, base: c.base(), name: name, Title: title, Body: body}
	for _, f := range change {
		f(v)
	}
	return u.write(c, v, http.StatusOK)
}

// live is a change of show: the page's live parts are read again.
func live(v *view) { v.Every = liveEvery }

func (u *ui) write(c *call, v *view, status int) error {
	var page bytes.Buffer // an error is told in the place of the page
	if err := u.pages[v.name].ExecuteTemplate(&page, "layout", v); err != nil {
		return fmt.Errorf("admin: page %s: %w", v.name, err)
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = page.WriteTo(c.w) // a reader that has left does not want it
	return nil
}

// problem is a page about an error.
func (u *ui) problem(c *call, p *problem) {
	v := &view{ui: u, call: c, base: c.base(), name: "problem", Title: p.Title, Body: p}
	if err := u.write(c, v, p.Status); err != nil {
		http.Error(c.w, p.Title, p.Status)
	}
}

// Link is a relative address within the console, with names and values behind it.
func (v *view) Link(to string, pairs ...string) string { return link(v.base, to, pairs...) }

// Asset is the address of a file.
func (v *view) Asset(name string) string { return v.base + "static/" + v.ui.names[name] }

// Site is the console's title, and where it is.
func (v *view) Site() string { return cmp.Or(v.ui.h.cfg.Title, "luatx") }

// Known reports whether the reader may see anything.
func (v *view) Known() bool { return v.call.who.May >= MayView }

// Who is the reader's name.
func (v *view) Who() string { return v.call.who.Name }

// May is what the reader may do, in a word.
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

// CanRetry and CanPurge report what is offered.
func (v *view) CanRetry() bool { return v.call.who.May >= MayRetry }

// CanPurge reports whether the reader may remove things for good.
func (v *view) CanPurge() bool { return v.call.who.May >= MayPurge }

// CanRead reports whether the reader may see payloads and export events.
func (v *view) CanRead() bool { return v.call.who.Payloads }

// Here is the way back to this page from its mount point.
func (v *view) Here() string {
	if v.call.r.Method != http.MethodGet {
		return cmp.Or(v.call.r.PostForm.Get("here"), "parked")
	}
	here := strings.TrimPrefix(v.call.r.URL.EscapedPath(), "/")
	if v.call.r.URL.RawQuery != "" {
		here += "?" + v.call.r.URL.RawQuery
	}
	return here
}

// navigation is an entry of the menu.
type navigation struct {
	Name, Path, Key string
	Current         bool
}

// Nav is the menu.
func (v *view) Nav() []navigation {
	menu := []navigation{
		{Name: "Overview", Path: "", Key: "o"},
		{Name: "Parked", Path: "parked", Key: "p"},
		{Name: "Streams", Path: "streams", Key: "s"},
		{Name: "Inbox", Path: "inbox", Key: "i"},
		{Name: "Work", Path: "operations", Key: "w"},
		{Name: "Audit", Path: "audit", Key: "a"},
		{Name: "Doctor", Path: "doctor", Key: "d"},
	}
	for i := range menu {
		menu[i].Current = menu[i].Path == v.name || menu[i].Path == "" && v.name == "overview"
	}
	return menu
}
