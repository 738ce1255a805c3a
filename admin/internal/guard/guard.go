// Package guard decides which HTTP requests reach an operator. It identifies their sender, checks rights and origins, and
// limits their cost. The API and the console register their routes with it.
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/luatx/luatx/admin"
)

// Config configures a Guard. No field has a default.
type Config struct {
	// Authorize returns the identity that sent a request, or ErrUnknown.
	Authorize func(*http.Request) (Identity, error)
	// Challenge is the header WWW-Authenticate of a 401.
	Challenge string
	// ReadOnly limits every identity to reading.
	ReadOnly bool
	// Timeout bounds a request.
	Timeout time.Duration
	// MaxScans is the maximum number of requests to routes that scan at a time, and a quarter of it for one identity.
	MaxScans int
	// Logger logs rejected requests and failures.
	Logger *slog.Logger
}

// Guard passes the requests that it accepts to its routes. It may be mounted under any prefix.
type Guard struct {
	op      *admin.Operator
	cfg     Config
	mux     *http.ServeMux
	origins http.CrossOriginProtection
	scans   *scans
	logins  *throttle
	// renderError writes an error for people. If it is nil, every error is JSON.
	renderError func(*Call, *Problem)
}

// New returns a Guard without routes. Each call acts in the name of its sender.
func New(op *admin.Operator, cfg Config) *Guard {
	return &Guard{op: op, cfg: cfg, mux: http.NewServeMux(), scans: newScans(cfg.MaxScans), logins: newThrottle()}
}

// AddPages registers the pages of a console and its error page.
func (g *Guard) AddPages(pages Pages) {
	g.Add(pages.Routes...)
	g.renderError = pages.Error
}

// Add registers routes.
func (g *Guard) Add(routes ...Route) {
	for _, route := range routes {
		g.mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			g.serve(w, r, func(c *Call) error { return c.enter(route) })
		})
	}
}

// ServeHTTP implements http.Handler.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.Timeout)
	defer cancel()
	asked := pathOf(r)
	r = r.WithContext(ctx)
	address := *r.URL
	address.Path, address.RawPath = asked, "" // routes match the decoded path
	r.URL = &address
	switch _, pattern := g.mux.Handler(r); {
	case asked == "": // the prefix without its slash, from which relative links would lead outside
		g.serve(w, r, func(c *Call) error {
			c.abandonBody()
			c.to(baseName(r.RequestURI) + "/")
			return nil
		})
	case pattern == "" || path.Clean(asked) != asked:
		g.serve(w, r, (*Call).enterNowhere)
	default:
		g.mux.ServeHTTP(w, r)
	}
}

// serve handles a request with do, and sends its error.
func (g *Guard) serve(w http.ResponseWriter, r *http.Request, do func(*Call) error) {
	c := &Call{W: w, R: r, guard: g}
	harden(w.Header())
	if r.Method != http.MethodPost {
		c.abandonBody()
	}
	if err := do(c); err != nil {
		c.abandonBody()
		c.fail(err)
	}
}

// enter checks the request against the requirements of its route, and then runs the route.
func (c *Call) enter(route Route) error {
	if route.Probe {
		return route.Do(c)
	}
	if err := c.identify(); err != nil {
		return err
	}
	if c.Who.May < route.Needs {
		return &Problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("this route needs the right to %[3]s, but %[1]s may only %[2]s", c.Who.Name, c.Who.May, route.Needs)}
	}
	c.page = route.Page
	if err := c.guard.origins.Check(c.R); err != nil {
		return &Problem{Status: http.StatusForbidden, Title: "Cross-origin request", Detail: "the request comes from a page of another origin"}
	}
	if err := c.limit(); err != nil {
		return err
	}
	if route.Scans {
		done, err := c.guard.scans.begin(c.Who.Name)
		if err != nil {
			return err
		}
		defer done()
	}
	c.Op = c.guard.op.As(c.Who.Name)
	return route.Do(c)
}

// enterNowhere replies 404 or 405 to a known sender if no route matches the request.
func (c *Call) enterNowhere() error {
	if err := c.identify(); err != nil {
		return err
	}
	refusal := headerOnly{header: http.Header{}}
	handler, _ := c.guard.mux.Handler(c.R)
	handler.ServeHTTP(&refusal, c.R)
	if refusal.status != http.StatusMethodNotAllowed {
		return &Problem{Status: http.StatusNotFound, Detail: "nothing exists at this path; api/openapi.json lists the routes"}
	}
	allowed := refusal.header.Get("Allow")
	c.W.Header().Set("Allow", allowed)
	return &Problem{Status: http.StatusMethodNotAllowed, Detail: "use " + allowed}
}

// headerOnly stores the status and header of a reply.
type headerOnly struct {
	header http.Header
	status int
}

func (w *headerOnly) Header() http.Header         { return w.header }
func (w *headerOnly) Write(p []byte) (int, error) { return len(p), nil }
func (w *headerOnly) WriteHeader(status int)      { w.status = status }

// pathOf returns the path after the prefix, or "" if the request is for the prefix without its slash.
func pathOf(r *http.Request) string {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	if r.URL.Path == "" && asked != "" && !strings.HasSuffix(asked, "/") {
		return ""
	}
	return "/" + strings.TrimPrefix(r.URL.Path, "/")
}

// baseName returns the last part of the path of a request.
func baseName(uri string) string {
	asked, _, _ := strings.Cut(uri, "?")
	return "./" + path.Base(asked)
}
