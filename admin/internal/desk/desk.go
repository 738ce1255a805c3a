// Package desk holds what the API and the console of one handler share: its operator, the last numbers and the history, the
// operations that outlive their requests, and the filters and pages of lists of parked events.
package desk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

// Config configures a Desk. Only Redact may be nil.
type Config struct {
	// Title names the environment.
	Title string
	// Streams are the keys of the streams that are shown by default.
	Streams []string
	// NoRepair offers neither check nor fix.
	NoRepair bool
	// Redact changes copies of the payload of an event before it is shown.
	Redact func(outbox.Event, Payload) Payload
	// Timeout bounds a request.
	Timeout time.Duration
	// MaxOperations is how many operations may run at a time.
	MaxOperations int
	// Logger gets failures.
	Logger *slog.Logger
}

// Desk is the common state of an API and a console.
type Desk struct {
	Config

	// Op is the operator. It re-arms events to other destinations only if its configuration says to which.
	Op         *admin.Operator
	Samples    *Samples
	Histories  *Histories
	Operations *Operations
	// Elsewhere reports whether events may be re-armed to other destinations.
	Elsewhere bool

	slots map[int]bool // of the keyspace
}

// New returns the Desk of an operator. It does no I/O.
func New(op *admin.Operator, cfg Config) *Desk {
	d := &Desk{
		Config: cfg, Op: guarded(op), Operations: newOperations(cfg), Elsewhere: parts.Of(op).Destinations != nil, slots: map[int]bool{},
	}
	d.Samples, d.Histories = newSamples(d.Op), newHistories(d.Op)
	for _, n := range parts.Of(op).Transactor.Keyspace().Slots() {
		d.slots[n] = true
	}
	return d
}

var errNoDestinations = errors.New("the configuration allows no destination; set OperatorConfig.Destinations or luatx serve --destination")

// guarded returns an operator that accepts no other destination if the configuration of op names none.
func guarded(op *admin.Operator) *admin.Operator {
	core := parts.Of(op)
	if core.Destinations != nil {
		return op
	}
	op = op.As(core.Name) // a copy
	core = parts.Of(op)
	core.Destinations = func(string) error { return errNoDestinations }
	core.Store = core.Store.WithDestinations(core.Destinations)
	return op
}

// Run measures the outbox for the history until ctx ends, if no other process does; then it closes the Desk.
func (d *Desk) Run(ctx context.Context) error {
	defer d.Close()
	parts.Of(d.Op).History.Keep(ctx, nil)
	<-ctx.Done()
	return nil
}

// Close stops the operations that run and waits for their end. None begins after that.
func (d *Desk) Close() { d.Operations.close() }

// Time returns the time of the server.
func (d *Desk) Time(ctx context.Context) (time.Time, error) {
	return parts.Of(d.Op).Client.Time(ctx).Result()
}

// Cutoff returns the time of the server for the events that a preview shows; see acts.Cutoff.
func (d *Desk) Cutoff(ctx context.Context) (time.Time, error) {
	return acts.Cutoff(ctx, parts.Of(d.Op).Client)
}

// NeedsOf returns the right that an act needs: to purge if it removes events or adds dead letters.
func NeedsOf(act outbox.Act) guard.Access {
	if act == outbox.ActDiscard || act == outbox.ActCancel || act == importKind {
		return guard.MayPurge
	}
	return guard.MayRetry
}

// Stop ends an operation early, if its caller may do what it does.
func (d *Desk) Stop(who guard.Identity, id string) error {
	o, ok := d.Operations.Get(id)
	switch {
	case !ok:
		return &guard.Problem{Status: http.StatusNotFound, Detail: "no such operation"}
	case NeedsOf(outbox.Act(o.Kind)) > who.May:
		return &guard.Problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("stopping a %[3]s needs the right to purge, but %[1]s may only %[2]s", who.Name, who.May, o.Kind)}
	}
	d.Operations.stop(id)
	return nil
}
