package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// route is what is done for a method and a path.
type route struct {
	method, pattern string // {id} stands for one part of the path
	needs           Access
	do              func(*call) error
	page            bool // for people: a form, not JSON
	probe           bool // for whoever watches the process
	scans           bool // reads lists or whole shards, so few run at a time
}

type routes struct{ all []route }

// page adds a page of the console.
func (rs *routes) page(method, pattern string, needs Access, do func(*call) error) {
	rs.all = append(rs.all, route{method: method, pattern: pattern, needs: needs, do: do, page: true})
}

// json adds a route of the API.
func (rs *routes) json(method, pattern string, needs Access, do func(*call) error) {
	rs.all = append(rs.all, route{method: method, pattern: pattern, needs: needs, do: do})
}

// scanning marks the route that was added last.
func (rs *routes) scanning() { rs.all[len(rs.all)-1].scans = true }

// find returns the route of a call, or else the methods that its path has.
func (rs *routes) find(c *call) (found *route, allowed string) {
	var methods []string
	for i := range rs.all {
		r := &rs.all[i]
		id, ok := match(r.pattern, c.path)
		if !ok {
			continue
		}
		if r.method == c.r.Method || r.method == http.MethodGet && c.r.Method == http.MethodHead {
			c.id = id
			return r, ""
		}
		methods = append(methods, r.method)
		if r.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return nil, strings.Join(methods, ", ")
}

// match compares a path with a pattern, part by part, and returns what stands for {id}.
func match(pattern, path string) (id string, ok bool) {
	before, after, open := strings.Cut(pattern, "{id}")
	if !open {
		return "", pattern == path
	}
	id, ok = strings.CutPrefix(path, before)
	if !ok {
		return "", false
	}
	id, ok = strings.CutSuffix(id, after)
	return id, ok && id != "" && !strings.Contains(id, "/")
}

// call is one request on its way.
type call struct {
	h     *Handler
	w     http.ResponseWriter
	r     *http.Request
	path  string // behind the prefix
	query url.Values
	who   Identity
	op    *Operator // acts in who's name
	id    string    // what stands for {id}
	page  bool
	// bodyRead says that the body was read to its end.
	bodyRead bool
}

// base is the way from the page that was asked for back to where the handler is mounted.
func (c *call) base() string {
	if n := strings.Count(c.path, "/") - 1; n > 0 {
		return strings.Repeat("../", n)
	}
	return "./"
}

// redirect answers a form: the browser goes to another page, named from where the handler is mounted.
func (c *call) redirect(page string) { c.to(c.base() + page) }

// to redirects. The location is relative: only the browser knows the prefix.
func (c *call) to(location string) {
	c.w.Header().Set("Location", location)
	c.w.WriteHeader(http.StatusSeeOther)
}
