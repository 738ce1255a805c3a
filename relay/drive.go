package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/message"
)

// A Source delivers events, which the receiver settles. An ack means that the event was published, a nack that publishing
// failed. If the error of a nack has a method Untried that returns true, the attempt does not count. An error may also
// request a delay until the next attempt (message.RetryDelay). *sqltx.OutboxPublisher is a Source.
type Source interface {
	// Source returns a channel of events. The source closes the channel some time after ctx has ended.
	Source(ctx context.Context) (<-chan *message.RawMessage, error)
}

// DriveConfig configures Drive. Its zero value works.
type DriveConfig struct {
	// BatchSize is the maximum number of events in one call of the Publisher. Defaults to 100; at most 1000.
	BatchSize int
	// Concurrency is the number of batches that are published at a time. Defaults to 4.
	Concurrency int
	// Timeout bounds one call of the Publisher, whose context then ends. Drive abandons a call that has not returned half a
	// second later, or earlier if Timeout or DrainTimeout is short. After Timeout there must be time to settle the events
	// before the source delivers them again. Defaults to 20 seconds.
	Timeout time.Duration
	// PauseCap is the longest pause while the Publisher is unavailable. Defaults to 5 seconds.
	PauseCap time.Duration
	// DrainTimeout is how long calls of the Publisher may run after the context of Drive has ended. Their contexts end
	// earlier, by a quarter of DrainTimeout, but no more than 1 second. Defaults to 5 seconds.
	DrainTimeout time.Duration
	// Observer is notified of calls of the Publisher and of outages, but not of settled events, which only the source knows.
	// Defaults to none.
	Observer Observer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

func (c DriveConfig) withDefaults() DriveConfig {
	c.BatchSize = cmp.Or(c.BatchSize, 100)
	c.Concurrency = cmp.Or(c.Concurrency, 4)
	c.Timeout = cmp.Or(c.Timeout, 20*time.Second)
	c.PauseCap = cmp.Or(c.PauseCap, 5*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c DriveConfig) validate() error {
	switch {
	case c.BatchSize < 0 || c.BatchSize > shard.MaxLimit:
		return fmt.Errorf("relay: DriveConfig.BatchSize is %d; use 1 to %d, or 0 for the default", c.BatchSize, shard.MaxLimit)
	case c.Concurrency < 0:
		return fmt.Errorf("relay: DriveConfig.Concurrency is %d; use 0 for the default, or more", c.Concurrency)
	case min(c.Timeout, c.PauseCap, c.DrainTimeout) < 0:
		return errors.New("relay: DriveConfig.Timeout, PauseCap or DrainTimeout is negative; use 0 for the default, or more")
	}
	return nil
}

// Drive publishes the events of a source, such as the outbox of an SQL database, through the Publisher of a relay. The
// errors of the Publisher have the same meaning as for a Relay, and an outage of one destination pauses only that
// destination.
//
// When ctx ends, Drive settles the events in flight and returns nil. It returns an error if source or publisher is nil, if
// cfg is invalid, or if the source cannot start.
func Drive(ctx context.Context, source Source, publisher Publisher, cfg DriveConfig) error {
	if source == nil || publisher == nil {
		return errors.New("relay: Drive needs a Source and a Publisher")
	}
	if err := cfg.validate(); err != nil {
		return err
	}
	cfg = cfg.withDefaults()
	events, err := source.Source(ctx)
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cfg.DrainTimeout-reserveOf(cfg.DrainTimeout), stop) })()

	d := driver{events: events, publisher: publisher, cfg: cfg, outage: outages{log: cfg.Logger, notify: cfg.Observer.Outage, cap: cfg.PauseCap, most: perScope * cfg.Concurrency}}
	var workers sync.WaitGroup
	for range cfg.Concurrency {
		workers.Go(func() { d.run(work) })
	}
	workers.Wait()
	d.probes.Wait()
	if writes, ok := source.(interface{ Wait() }); ok {
		writes.Wait() // until the last acks are written
	}
	return nil
}

type driver struct {
	events    <-chan *message.RawMessage
	publisher Publisher
	cfg       DriveConfig
	outage    outages
	probes    sync.WaitGroup
}

func (d *driver) run(ctx context.Context) {
	for batch := d.batch(); len(batch) > 0; batch = d.batch() {
		scopes := make(map[string][]*message.RawMessage)
		for _, msg := range batch {
			scope := scopeOf(d.publisher, msg)
			scopes[scope] = append(scopes[scope], msg)
		}
		var groups sync.WaitGroup
		for scope, group := range scopes {
			switch in := d.outage.enter(scope, len(group)); {
			case !in.open:
				for _, msg := range group {
					msg.Nack(untried{Later(ErrUnavailable, in.wait)})
				}
			case in.probe: // the worker must not wait for a probe
				d.probes.Go(func() { d.publish(ctx, scope, in, group) })
			default:
				groups.Go(func() { d.publish(ctx, scope, in, group) })
			}
		}
		groups.Wait()
	}
}

// publish publishes the events of one scope and settles them.
func (d *driver) publish(ctx context.Context, scope string, in entry, group []*message.RawMessage) {
	errs := d.call(ctx, scope, group)
	if ctx.Err() != nil { // Drive stopped the call, so neither the events nor the destination are to blame
		for i, err := range errs {
			errs[i] = Later(err, 0)
		}
	}
	pause := d.outage.note(ctx, scope, in, errs)
	for i, msg := range group {
		switch err := errs[i]; settle.Decide(err) {
		case settle.Sent:
			msg.Ack()
		case settle.GiveBack:
			msg.Nack(untried{message.RetryAfter(err, settle.Wait(err, pause))})
		default:
			msg.Nack(err)
		}
	}
}

// call calls the Publisher, unless Drive has to stop. If an abandoned call returns later, its events are not settled, and
// the source delivers them again.
func (d *driver) call(ctx context.Context, scope string, group []*message.RawMessage) []error {
	if err := ctx.Err(); err != nil {
		return fill(len(group), err)
	}
	bounded, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	w := watch{outages: &d.outage, log: d.cfg.Logger, notify: d.cfg.Observer.Stuck, scope: scope, began: time.Now()}
	s := w.supervision(ctx, graceOf(d.cfg.Timeout, reserveOf(d.cfg.DrainTimeout)))
	errs := ask(s.attach(bounded), d.publisher, group)
	d.cfg.Observer.published(ctx, d.cfg.Logger, scope, w.began, errs)
	return errs
}

// untried is the error of a nack whose attempt does not count. Sources recognize it by its method.
type untried struct{ error }

func (u untried) Unwrap() error { return u.error }

// Untried reports that the event was not tried.
func (untried) Untried() bool { return true }

// batch waits for an event and returns it with the events that are already in the channel. It returns nil when the source
// has closed the channel.
func (d *driver) batch() []*message.RawMessage {
	first, open := <-d.events
	if !open {
		return nil
	}
	batch := []*message.RawMessage{first}
	for len(batch) < d.cfg.BatchSize {
		select {
		case msg, open := <-d.events:
			if !open {
				return batch
			}
			batch = append(batch, msg)
		default:
			return batch
		}
	}
	return batch
}
