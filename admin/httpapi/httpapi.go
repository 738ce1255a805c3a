// Package httpapi serves an operator over HTTP: a JSON API that openapi.json describes, and a console if one is given.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/outbox"
)

// Config configures a Handler. Authorize is required.
type Config struct {
	// Authorize returns the identity that sent a request: see Tokens. If the error is ErrUnknown, the Handler replies with
	// status 401 and Challenge, and counts the failure if the request has an Authorization header. After 10 failures of an
	// address, or 100 of all, it replies with status 429 and accepts one attempt every 6 seconds, or 10 a second. Credentials
	// that were accepted lately do not wait. Any other error is a 403.
	Authorize func(*http.Request) (Identity, error)
	// Challenge is the header WWW-Authenticate of a 401. Defaults to Basic, for which browsers ask their users.
	Challenge string
	// Console adds pages for people: set it to console.New. Defaults to nil, which serves the API alone.
	Console func(*desk.Desk) (guard.Pages, error)
	// ReadOnly limits every identity to reading. Defaults to false.
	ReadOnly bool
	// Redact replaces the attributes and data of an event before they are shown. It gets copies. Exports are disabled if it is
	// set. The id, the destination, the type, the ordering key and the texts of failures are always shown. Defaults to nil:
	// identities that may read payloads see all of them.
	Redact func(outbox.Event, Payload) Payload
	// NoRepair disables check and fix. Set it if the Transactor's Retention differs from the service's. Defaults to false.
	NoRepair bool
	// Title is the name of the environment. Defaults to the Transactor's Namespace.
	Title string
	// Streams are the keys of the streams that are shown by default. Defaults to none.
	Streams []string
	// Timeout bounds a request, but not an operation that it starts. Defaults to 30 seconds.
	Timeout time.Duration
	// MaxOperations is the maximum number of operations that run at a time. Defaults to 4.
	MaxOperations int
	// MaxScans is the maximum number of requests that read lists, audits or whole shards at a time, and a quarter of it for
	// one identity. Further requests get status 429 and a Retry-After header. Defaults to 16.
	MaxScans int
	// Logger logs rejected requests and failures. Defaults to slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults(namespace string) Config {
	c.Challenge = cmp.Or(c.Challenge, `Basic realm="luatx", charset="UTF-8"`)
	c.Title = cmp.Or(c.Title, namespace)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.MaxOperations = cmp.Or(c.MaxOperations, 4)
	c.MaxScans = cmp.Or(c.MaxScans, 16)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c Config) validate() error {
	if c.Authorize == nil {
		return errors.New("httpapi: Config.Authorize is nil; use Tokens, or a function that identifies the sender of a request")
	}
	for name, n := range map[string]int64{
		"Timeout": int64(c.Timeout), "MaxOperations": int64(c.MaxOperations), "MaxScans": int64(c.MaxScans),
	} {
		if n < 0 {
			return fmt.Errorf("httpapi: Config.%s is negative; use 0 for the default, or more", name)
		}
	}
	return nil
}

// Payload is the content of an event.
type Payload struct {
	// Attributes are the CloudEvents attributes, or nil if the body cannot be decoded.
	Attributes map[string]string
	// Data is the event's data, or its whole body if that cannot be decoded. It is nil if there is none.
	Data []byte
}

// Handler serves an Operator over HTTP: a JSON API under api/, described by api/openapi.json, and a console for people. It
// may be mounted under any prefix with http.StripPrefix. Close it, or let Run end, before the Operator's client is closed.
type Handler struct {
	desk  *desk.Desk
	guard *guard.Guard
}

// New returns the handler of an Operator. It does no I/O. Without OperatorConfig.Destinations the handler re-arms events
// only to their own destinations. It returns an error if op is nil or cfg is invalid.
func New(op *admin.Operator, cfg Config) (*Handler, error) {
	if op == nil {
		return nil, errors.New("httpapi: the Operator is nil; use the result of admin.NewOperator")
	}
	cfg = cfg.withDefaults(parts.Of(op).Transactor.Config().Namespace)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d := desk.New(op, desk.Config{
		Title: cfg.Title, Streams: cfg.Streams, NoRepair: cfg.NoRepair, Redact: cfg.redact(), Timeout: cfg.Timeout,
		MaxOperations: cfg.MaxOperations, Logger: cfg.Logger,
	})
	h := &Handler{d, guard.New(d.Op, guard.Config{
		Authorize: cfg.authorize, Challenge: cfg.Challenge, ReadOnly: cfg.ReadOnly, Timeout: cfg.Timeout, MaxScans: cfg.MaxScans,
		Logger: cfg.Logger,
	})}
	h.guard.Add(h.routes()...)
	if cfg.Console != nil {
		pages, err := cfg.Console(d)
		if err != nil {
			return nil, err
		}
		h.guard.AddPages(pages)
	}
	return h, nil
}

func (c Config) authorize(r *http.Request) (guard.Identity, error) {
	who, err := c.Authorize(r)
	return guard.Identity(who), err
}

func (c Config) redact() func(outbox.Event, desk.Payload) desk.Payload {
	if c.Redact == nil {
		return nil
	}
	return func(e outbox.Event, p desk.Payload) desk.Payload { return desk.Payload(c.Redact(e, Payload(p))) }
}

// Run measures the outbox for the history until ctx ends, unless relays or repair workers do so already. Then it closes the
// handler. Without Run, the handler works too, and shows the history that other processes write.
func (h *Handler) Run(ctx context.Context) error { return h.desk.Run(ctx) }

// Close stops the running operations and waits until they have ended. Later requests for operations fail.
func (h *Handler) Close() { h.desk.Close() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.guard.ServeHTTP(w, r) }
