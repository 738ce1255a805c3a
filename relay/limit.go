package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/luatx/luatx/message"
)

// LimitConfig configures Limit. One of Concurrency and Rate is required.
type LimitConfig struct {
	// Concurrency is how many calls of the Publisher are under way at a time. Defaults to 0: any number.
	Concurrency int
	// Batch is the most events of one call. Defaults to 1 where Concurrency is set, else 100.
	Batch int
	// Rate is how many events a second go out. Defaults to 0: any number.
	Rate float64
	// Burst is how many of them at once, after a pause. Defaults to a tenth of Rate, at least 1.
	Burst int
	// Tenant names whose an event is. While more waits than can go out, the tenants take turns. Defaults to one for all.
	Tenant func(*message.RawMessage) string
	// Weight is how many events a tenant sends in its turn. Less than 1 counts as 1. Defaults to 1 for all.
	Weight func(tenant string) int
	// Wait is how long events wait here for their turn; one of each tenant does in any case. The others are given back
	// until their turn may have come, so that the relay finds what other tenants have. Defaults to 100 ms.
	Wait time.Duration
	// Key names what keeps events in order, as that of FuncConfig. Defaults to the partition key.
	Key func(*message.RawMessage) string
}

func (c LimitConfig) withDefaults() LimitConfig {
	if c.Batch == 0 {
		c.Batch = 100
		if c.Concurrency > 0 {
			c.Batch = 1
		}
	}
	c.Burst = cmp.Or(c.Burst, int(max(1, c.Rate/10)))
	if c.Tenant == nil {
		c.Tenant = func(*message.RawMessage) string { return "" }
	}
	if c.Weight == nil {
		c.Weight = func(string) int { return 1 }
	}
	c.Wait = cmp.Or(c.Wait, 100*time.Millisecond)
	if c.Key == nil {
		c.Key = (*message.RawMessage).PartitionKey
	}
	return c
}

func (c LimitConfig) validate() error {
	switch {
	case min(c.Concurrency, c.Batch, c.Burst) < 0 || c.Wait < 0:
		return errors.New("relay: LimitConfig.Concurrency, Batch, Burst and Wait: use 0 for the default, or more")
	case c.Rate < 0 || math.IsNaN(c.Rate) || math.IsInf(c.Rate, 0):
		return fmt.Errorf("relay: LimitConfig.Rate is %v: use 0 for no limit, or more", c.Rate)
	case c.Concurrency == 0 && c.Rate == 0:
		return errors.New("relay: LimitConfig.Concurrency and Rate: set one of them, or leave Limit out")
	}
	return nil
}

// Limit bounds what a Publisher is given, each of its scopes for itself; put it around the Publisher of a Rule for limits of
// one destination. The bounds are those of this process: several relays share nothing. Where a destination is the
// bottleneck, tenants take turns. An event that would wait for too long gets the error Later, which counts no attempt and
// is not an outage.
func Limit(p Publisher, cfg LimitConfig) (Scoped, error) {
	if p == nil {
		return nil, errors.New("relay: Limit needs a Publisher")
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &limited{publisher: p, cfg: cfg, limiters: make(map[string]*limiter)}, nil
}

type limited struct {
	publisher Publisher
	cfg       LimitConfig

	mu       sync.Mutex
	limiters map[string]*limiter // by scope
}

// Scope implements Scoped.
func (l *limited) Scope(event *message.RawMessage) string { return scopeOf(l.publisher, event) }

// Publish implements Publisher.
func (l *limited) Publish(ctx context.Context, events []*message.RawMessage) []error {
	c := &call{ctx: ctx, publisher: l.publisher, events: events, errs: make([]error, len(events))}
	tickets := make(map[string][]*ticket)
	for _, chain := range byKey(events, l.cfg.Key) {
		first := events[chain[0]]
		scope := l.Scope(first)
		whose := l.cfg.Tenant(first)
		tickets[scope] = append(tickets[scope], &ticket{call: c, tenant: whose, weight: l.cfg.Weight(whose), chain: chain})
	}
	for scope, some := range tickets {
		at := l.enter(scope)
		defer l.leave(at)
		stop := context.AfterFunc(ctx, func() { at.cancel(c) })
		defer stop()
		at.join(some)
	}
	c.waiting.Wait()
	return c.errs
}

// enter returns the limiter of a scope, and keeps it there until leave. Where there are many, it forgets those that remember
// nothing.
func (l *limited) enter(scope string) *limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.limiters[scope]
	if at == nil {
		if len(l.limiters) >= manyOutages {
			maps.DeleteFunc(l.limiters, func(_ string, other *limiter) bool { return other.users == 0 && other.idle() })
		}
		at = newLimiter(l.cfg)
		l.limiters[scope] = at
	}
	at.users++
	return at
}

func (l *limited) leave(at *limiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at.users--
}

// call is one Publish under way.
type call struct {
	ctx       context.Context
	publisher Publisher
	events    []*message.RawMessage
	errs      []error
	waiting   sync.WaitGroup // for its tickets
}

// ticket is a place in the queue for the first of some events of one key, and then for the next.
type ticket struct {
	call   *call
	tenant string
	weight int
	chain  []int // positions among the events
}

// finish answers all that is left of a ticket.
func (t *ticket) finish(err error) {
	for _, i := range t.chain {
		t.call.errs[i] = err
	}
	t.call.waiting.Done()
}

// publish sends the first event of each ticket, all of one call, and returns the tickets that have another one to send.
func (c *call) publish(tickets []*ticket) (again []*ticket, down error) {
	some := make([]*message.RawMessage, len(tickets))
	for i, t := range tickets {
		some[i] = c.events[t.chain[0]]
	}
	for i, err := range ask(c.ctx, c.publisher, some) {
		t := tickets[i]
		c.errs[t.chain[0]] = err
		t.chain = t.chain[1:]
		switch {
		case errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrLater):
			down = err
			t.finish(err)
		case errors.Is(err, ErrLater):
			t.finish(err) // and so due again together
		case err != nil:
			t.finish(Later(errBehind, 0))
		case len(t.chain) > 0:
			again = append(again, t)
		default:
			t.finish(nil)
		}
	}
	return again, down
}
