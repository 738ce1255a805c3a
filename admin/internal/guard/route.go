package guard

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/luatx/luatx/admin"
)

// Route tells what to do for a method and a path.
type Route struct {
	// Pattern is that of an http.ServeMux: a method and a path.
	Pattern string
	Needs   Access
	Do      func(*Call) error
	// Page marks a route for people: a POST takes a form, not JSON, and an error is a page.
	Page bool
	// Probe marks a route for those who watch the process. They need not be known.
	Probe bool
	// Scans marks a route that reads lists or whole shards, so that few run at a time.
	Scans bool
}

// Pages are the routes of a console. Error writes an error as a page.
type Pages struct {
	Routes []Route
	Error  func(*Call, *Problem)
}

// Call is one request that the Guard lets through.
type Call struct {
	W http.ResponseWriter
	// R has the path behind the prefix that the Guard is mounted under.
	R     *http.Request
	Query url.Values
	Who   Identity
	// Op acts in the name of Who.
	Op *admin.Operator

	guard *Guard
	page  bool
	// bodyRead reports that the body was read to its end.
	bodyRead bool
}

// Base is the way from the page that was asked for back to where the Guard is mounted.
func (c *Call) Base() string {
	if n := strings.Count(c.R.URL.Path, "/") - 1; n > 0 {
		return strings.Repeat("../", n)
	}
	return "./"
}

// Redirect answers a form: the browser goes to another page, named from where the Guard is mounted.
func (c *Call) Redirect(page string) { c.to(c.Base() + page) }

// to redirects. The location is relative: only the browser knows the prefix.
func (c *Call) to(location string) {
	c.W.Header().Set("Location", location)
	c.W.WriteHeader(http.StatusSeeOther)
}
