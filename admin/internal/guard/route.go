package guard

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/luatx/luatx/admin"
)

// Route is the handler of a method and a path.
type Route struct {
	// Pattern is a pattern of http.ServeMux: a method and a path.
	Pattern string
	Needs   Access
	Do      func(*Call) error
	// Page marks a route for people: a POST takes a form, not JSON, and an error is a page.
	Page bool
	// Probe marks a route for monitoring of the process, which needs no identity.
	Probe bool
	// Scans marks a route that reads lists or whole shards, so that few run at a time.
	Scans bool
}

// Pages are the routes of a console. Error writes an error as a page.
type Pages struct {
	Routes []Route
	Error  func(*Call, *Problem)
}

// Call is one request that the Guard has accepted.
type Call struct {
	W http.ResponseWriter
	// R has the path after the prefix under which the Guard is mounted.
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

// Base returns the relative path from the requested page to the mount point of the Guard.
func (c *Call) Base() string {
	if n := strings.Count(c.R.URL.Path, "/") - 1; n > 0 {
		return strings.Repeat("../", n)
	}
	return "./"
}

// Redirect replies to a form with a redirect to another page, relative to the mount point.
func (c *Call) Redirect(page string) { c.to(c.Base() + page) }

// to redirects. The location is relative, because only the browser knows the prefix.
func (c *Call) to(location string) {
	c.W.Header().Set("Location", location)
	c.W.WriteHeader(http.StatusSeeOther)
}
