package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/luatx/luatx/outbox"
)

// HandlerConfig configures a Handler. Authorize is required.
type HandlerConfig struct {
	// Authorize returns the identity that sent a request: see Tokens. If the error is ErrUnknown, the Handler replies with
	// status 401 and Challenge, and counts the failure where the request has an Authorization header: after 10 failures of an
	// address, or 100 of all, it replies with status 429 and accepts one attempt every 6 seconds, or 10 a second. Credentials
	// that were accepted lately do not wait. Any other error is a 403.
	Authorize func(*http.Request) (Identity, error)
	// Challenge is the header WWW-Authenticate of a 401. Defaults to Basic, for which browsers ask their users.
	Challenge string
	// ReadOnly lets nobody do more than look.
	ReadOnly bool
	// Redact changes what of an event's attributes and data is shown; it gets copies. Nothing is exported then. The id, the
	// destination, the type, the ordering key and the texts of failures are always shown. Defaults to nil: identities that
	// may read payloads see all of them.
	Redact func(outbox.Event, Payload) Payload
	// NoRepair offers neither check nor fix: for a Transactor whose Retention is not the service's.
	NoRepair bool
	// Title names the environment. Defaults to the Transactor's Namespace.
	Title string
	// Streams are the keys of the streams that are shown unless others are asked for.
	Streams []string
	// BodyLimit is the most bytes of a request's body. Defaults to 1 MiB.
	BodyLimit int64
	// Timeout bounds a request, operations that go on behind it apart. Defaults to 30 seconds.
	Timeout time.Duration
	// MaxOperations is how many operations may run at a time. Defaults to 4.
	MaxOperations int
	// MaxScans is how many requests may read lists, audits or whole shards at a time, MaxScansEach how many of them one
	// identity may send. Others get status 429 and a Retry-After header. Defaults to 16 and 4.
	MaxScans, MaxScansEach int
	// SampleEvery is how often Run keeps a sample of the numbers; an hour's fit. Defaults to 5 seconds.
	SampleEvery time.Duration
	// Logger gets what was refused and what failed. Defaults to slog.Default().
	Logger *slog.Logger
}

func (c HandlerConfig) withDefaults(namespace string) HandlerConfig {
	c.Challenge = cmp.Or(c.Challenge, `Basic realm="luatx", charset="UTF-8"`)
	c.Title = cmp.Or(c.Title, namespace)
	c.BodyLimit = cmp.Or(c.BodyLimit, 1<<20)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.MaxOperations = cmp.Or(c.MaxOperations, 4)
	c.MaxScans, c.MaxScansEach = cmp.Or(c.MaxScans, 16), cmp.Or(c.MaxScansEach, 4)
	c.SampleEvery = cmp.Or(c.SampleEvery, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c HandlerConfig) validate() error {
	if c.Authorize == nil {
		return errors.New("admin: HandlerConfig.Authorize is nil: use Tokens, or a function that identifies the sender of a request")
	}
	for name, n := range map[string]int64{
		"BodyLimit": c.BodyLimit, "Timeout": int64(c.Timeout), "MaxOperations": int64(c.MaxOperations), "SampleEvery": int64(c.SampleEvery),
		"MaxScans": int64(c.MaxScans), "MaxScansEach": int64(c.MaxScansEach),
	} {
		if n < 0 {
			return fmt.Errorf("admin: HandlerConfig.%s is negative: use 0 for the default, or more", name)
		}
	}
	return nil
}

// Handler serves an Operator over HTTP: a JSON API under api/, described by api/openapi.json, and a console for people. It
// may be mounted under any prefix with http.StripPrefix. Close it, or let Run end, before the Operator's client is closed.
type Handler struct {
	op         *Operator
	cfg        HandlerConfig
	routes     routes
	slots      map[int]bool // of the keyspace
	origins    http.CrossOriginProtection
	samples    *samples
	operations *operations
	scans      *scans
	logins     *throttle
	elsewhere  bool                  // events may be re-armed to other destinations
	errorPage  func(*call, *problem) // a console's
}

// NewHandler returns the handler of an Operator. It does no I/O. Without OperatorConfig.Destinations the handler re-arms
// events to the destinations that they have, and to no other.
func NewHandler(op *Operator, cfg HandlerConfig) (*Handler, error) {
	if op == nil {
		return nil, errors.New("admin: NewHandler needs an Operator")
	}
	cfg = cfg.withDefaults(op.transactor.Config().Namespace)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	h := &Handler{
		op: op.guarded(), cfg: cfg, slots: map[int]bool{}, samples: newSamples(cfg.SampleEvery), operations: newOperations(cfg),
		scans: newScans(cfg), logins: newThrottle(), elsewhere: op.cfg.Destinations != nil,
	}
	for _, n := range op.transactor.Keyspace().Slots() {
		h.slots[n] = true
	}
	h.api(&h.routes)
	if err := h.console(&h.routes); err != nil {
		return nil, err
	}
	return h, nil
}

// Run keeps samples of the numbers, for charts, until ctx ends; then it closes the handler. The handler answers without it
// as well, and keeps samples only as it is asked.
func (h *Handler) Run(ctx context.Context) error {
	defer h.Close()
	ticker := time.NewTicker(h.cfg.SampleEvery)
	defer ticker.Stop()
	for {
		h.sample(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (h *Handler) sample(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	if _, err := h.samples.now(bounded, h.op); err != nil && ctx.Err() == nil {
		h.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "luatx: no sample of the numbers", slog.Any("error", err))
	}
}

// Close stops the operations that run and waits for their end. None begins after that.
func (h *Handler) Close() { h.operations.close() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{h: h, w: w, path: pathOf(r)}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	c.r = r.WithContext(ctx)
	harden(w.Header())
	if r.Method != http.MethodPost {
		c.abandonBody()
	}
	if c.path == "" { // the prefix without its slash, from where no relative link leads inside
		c.abandonBody()
		c.to(baseName(r.RequestURI) + "/")
		return
	}
	if err := c.serve(); err != nil {
		c.abandonBody()
		c.fail(err)
	}
}

// serve lets the guards look at the request, then the route.
func (c *call) serve() error {
	route, allowed := c.h.routes.find(c)
	if route != nil && route.probe {
		return route.do(c)
	}
	if err := c.identify(); err != nil {
		return err
	}
	switch {
	case route == nil && len(allowed) == 0:
		return &problem{Status: http.StatusNotFound, Detail: "nothing is here; api/openapi.json lists what is"}
	case route == nil:
		c.w.Header().Set("Allow", allowed)
		return &problem{Status: http.StatusMethodNotAllowed, Detail: "use " + allowed}
	case c.who.May < route.needs:
		return &problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("%s may %s, and this needs the right to %s", c.who.Name, c.who.May, route.needs)}
	}
	c.page = route.page
	if err := c.h.origins.Check(c.r); err != nil {
		return &problem{Status: http.StatusForbidden, Title: "Cross-origin request", Detail: "a page of another origin must not do this"}
	}
	if err := c.limit(); err != nil {
		return err
	}
	if route.scans {
		done, err := c.h.scans.begin(c.who.Name)
		if err != nil {
			return err
		}
		defer done()
	}
	c.op = c.h.op.As(c.who.Name)
	return route.do(c)
}
