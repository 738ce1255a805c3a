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
	"github.com/luatx/luatx/message"
)

// A Source hands out events that settle themselves: an ack says that one was published, a nack that it failed. A nack
// whose error has a method Untried, which returns true, costs the event no attempt; like every error it may say when the
// event is to come again (message.RetryDelay). *sqltx.OutboxPublisher is one.
type Source interface {
	// Source returns a channel of events, which is closed some time after ctx has ended.
	Source(ctx context.Context) (<-chan *message.RawMessage, error)
}

// DriveConfig configures Drive. Its zero value works.
type DriveConfig struct {
	// BatchSize is the most events that the Publisher is given at once. Defaults to 100; at most 1000.
	BatchSize int
	// Concurrency is how many batches are published at a time. Defaults to 4.
	Concurrency int
	// Timeout is how long a call of the Publisher may take: its context ends then. Half a second later, or less if Timeout
	// or DrainTimeout is short, Drive abandons a call that has not returned. It must leave time to settle the events before
	// the source hands them out again. Defaults to 20 seconds.
	Timeout time.Duration
	// PauseCap is the longest pause while the Publisher is unavailable. Defaults to 5 seconds.
	PauseCap time.Duration
	// DrainTimeout is how long calls of the Publisher may take when the context of Drive has ended. Their contexts end a
	// quarter of it before, but no more than a second. Defaults to 5 seconds.
	DrainTimeout time.Duration
	// Observer is notified of calls of the Publisher and of outages, but not of settlements, which only the source knows.
	// Defaults to nobody.
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
	case c.BatchSize < 0 || c.BatchSize > maxBatch:
		return fmt.Errorf("relay: DriveConfig.BatchSize is %d: use 1 to %d, or 0 for the default", c.BatchSize, maxBatch)
	case c.Concurrency < 0:
		return fmt.Errorf("relay: DriveConfig.Concurrency is %d: use 0 for the default, or more", c.Concurrency)
	case min(c.Timeout, c.PauseCap, c.DrainTimeout) < 0:
		return errors.New("relay: DriveConfig.Timeout, PauseCap and DrainTimeout: use 0 for the default, or more")
	}
	return nil
}

// Drive publishes the events of a source, such as the outbox of an SQL database, with the Publisher of a relay. The
// Publisher's answers mean what they do to a Relay, and an outage of a destination pauses that one alone. Drive returns
// nil when ctx has ended and what was in flight is settled.
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

	d := driver{events: events, publisher: publisher, cfg: cfg, outage: outages{log: cfg.Logger, tell: cfg.Observer.Outage, cap: cfg.PauseCap, most: perScope * cfg.Concurrency}}
	var workers sync.WaitGroup
	for range cfg.Concurrency {
		workers.Go(func() { d.run(work) })
	}
	workers.Wait()
	d.probes.Wait()
	if writes, ok := source.(interface{ Wait() }); ok {
		writes.Wait() // the last acks
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
			case in.probe: // holds nobody up
				d.probes.Go(func() { d.publish(ctx, scope, in, group) })
			default:
				groups.Go(func() { d.publish(ctx, scope, in, group) })
			}
		}
		groups.Wait()
	}
}

// publish sends what has one scope, and settles it.
func (d *driver) publish(ctx context.Context, scope string, in entry, group []*message.RawMessage) {
	errs := d.call(ctx, scope, group)
	if ctx.Err() != nil { // stopped in the middle: not the events' fault, nor the destination's
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

// call calls the Publisher, unless Drive has to stop. If an abandoned call returns later, nobody settles its events: the source
// hands them out again.
func (d *driver) call(ctx context.Context, scope string, group []*message.RawMessage) []error {
	if err := ctx.Err(); err != nil {
		return fill(len(group), err)
	}
	bounded, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	w := watch{outages: &d.outage, log: d.cfg.Logger, tell: d.cfg.Observer.Stuck, scope: scope, began: time.Now()}
	s := w.supervision(ctx, graceOf(d.cfg.Timeout, reserveOf(d.cfg.DrainTimeout)))
	errs := ask(s.attach(bounded), d.publisher, group)
	d.cfg.Observer.published(ctx, d.cfg.Logger, scope, w.began, errs)
	return errs
}

// untried is the reason of a nack that costs no attempt. A source knows it by its method.
type untried struct{ error }

func (u untried) Unwrap() error { return u.error }

// Untried says that the event was not tried.
func (untried) Untried() bool { return true }

// batch waits for an event, and takes those that are there with it; none: the source has ended.
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
