package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/luatx/luatx/internal/observe"
	"github.com/luatx/luatx/message"
)

const (
	// maxStuck is the number of abandoned calls to one destination from which on nothing more is published to it. Each
	// abandoned call keeps its goroutine and its events.
	maxStuck = 256
	// maxStuckInAll is the number of abandoned calls to all destinations from which on nothing is published at all.
	maxStuckInAll = 1024
)

var errStuck = errors.New("relay: publish: too many calls of the publisher have not returned; make the publisher return when its context ends")

// watch supervises one call of a Publisher. It logs, counts and reports an abandoned call and its late return.
type watch struct {
	outages *outages
	log     *slog.Logger
	notify  func(context.Context, Stuck)
	scope   string
	began   time.Time
	// late is called with the events and errors of a call that returns after it was abandoned. It may be nil.
	late func(events []*message.RawMessage, errs []error)
}

func (w watch) supervision(ctx context.Context, grace time.Duration) supervision {
	ctx = context.WithoutCancel(ctx)
	log := w.log
	if w.scope != "" {
		log = log.With("destination", w.scope)
	}
	return supervision{grace, func(events []*message.RawMessage) func([]error) {
		w.outages.abandon(ctx, w.scope)
		log.Error("relay: publisher call abandoned", "events", len(events), "duration", time.Since(w.began))
		w.report(ctx, len(events), false)
		return func(errs []error) {
			w.outages.returned(ctx, w.scope)
			log.Warn("relay: abandoned publisher call returned", "events", len(events), "duration", time.Since(w.began))
			w.report(ctx, len(events), true)
			if w.late != nil {
				w.late(events, errs)
			}
		}
	}}
}

func (w watch) report(ctx context.Context, events int, returned bool) {
	observe.Tell(ctx, w.log, w.notify, Stuck{Destination: w.scope, Events: events, Began: w.began, Duration: time.Since(w.began), Returned: returned})
}

// abandon counts an abandoned call. While there are too many, the destination counts as unavailable.
func (o *outages) abandon(ctx context.Context, scope string) {
	o.mu.Lock()
	out := o.of(scope)
	out.stuck++
	o.stuck++
	full, at := out.stuck == maxStuck || o.stuck == maxStuckInAll, time.Now()
	o.mu.Unlock()
	if full {
		o.log.Error("relay: too many abandoned publisher calls", "destination", scope)
		observe.Tell(ctx, o.log, o.notify, Outage{Destination: scope, At: at, Err: errStuck})
	}
}

// returned counts the late return of an abandoned call.
func (o *outages) returned(ctx context.Context, scope string) {
	o.mu.Lock()
	out := o.of(scope)
	over, at := out.stuck == maxStuck || o.stuck == maxStuckInAll, time.Now()
	out.stuck--
	o.stuck--
	o.mu.Unlock()
	if over {
		o.log.Info("relay: publisher called again", "destination", scope)
		observe.Tell(ctx, o.log, o.notify, Outage{Destination: scope, At: at, Over: true})
	}
}

// clogged reports whether too many abandoned calls have not returned. The caller must hold the lock.
func (o *outages) clogged(out *outage) bool {
	return o.stuck >= maxStuckInAll || out != nil && out.stuck >= maxStuck
}
