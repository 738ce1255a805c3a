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

// LimitConfig configures Limit. Concurrency, Rate or both are required.
type LimitConfig struct {
	// Concurrency is the maximum number of calls of the Publisher that run at a time. Defaults to 0: no limit.
	Concurrency int
	// Batch is the maximum number of events of one call. Defaults to 1 if Concurrency is set, and to 100 otherwise.
	Batch int
	// Rate is the maximum number of events per second. Defaults to 0: no limit.
	Rate float64
	// Burst is the number of events that may be published at once after a pause. Defaults to a tenth of Rate, at least 1.
	Burst int
	// Tenant returns the tenant of an event. While more events wait than may be published, the tenants take turns. Defaults to
	// one tenant for all events.
	Tenant func(*message.RawMessage) string
	// Weight is the number of events that a tenant publishes in one turn. Values below 1 count as 1. Defaults to 1 for every
	// tenant.
	Weight func(tenant string) int
	// Wait is how long events wait here for their turn. The relay takes back events that would wait longer, until their turn
	// is expected, so that it can claim those of other tenants. One event of each tenant always waits here. Defaults to 100
	// ms.
	Wait time.Duration
	// Key returns the ordering key of an event, as FuncConfig.Key does. Defaults to the partition key.
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
		return errors.New("relay: LimitConfig.Concurrency, Batch, Burst or Wait is negative; use 0 for the default, or more")
	case c.Rate < 0 || math.IsNaN(c.Rate) || math.IsInf(c.Rate, 0):
		return fmt.Errorf("relay: LimitConfig.Rate is %v; use 0 for no limit, or more", c.Rate)
	case c.Concurrency == 0 && c.Rate == 0:
		return errors.New("relay: LimitConfig.Concurrency and Rate are both 0; set one of them, or leave Limit out")
	}
	return nil
}

// Limit returns a Publisher that limits the calls of p, separately for each scope. To limit one destination, put Limit
// around the Publisher of its Rule. The limits are those of this process; several relays share nothing. If a destination is
// the bottleneck, tenants take turns. An event that would wait too long gets an error made by Later, so its attempt does
// not count and no outage begins.
//
// Limit returns an error if p is nil or cfg is invalid. If the context of a call of Publish ends, the events that still
// wait are given back.
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

// enter returns the limiter of a scope, which stays until leave. If there are many limiters, enter forgets those without
// state.
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

// call is one running Publish.
type call struct {
	ctx       context.Context
	publisher Publisher
	events    []*message.RawMessage
	errs      []error
	waiting   sync.WaitGroup // until its tickets are finished
}

// ticket is a place in a queue for the events of one key. It stands for the first event, and later for each of the next.
type ticket struct {
	call   *call
	tenant string
	weight int
	chain  []int // positions in call.events
}

// finish sets the result of the remaining events of a ticket.
func (t *ticket) finish(err error) {
	for _, i := range t.chain {
		t.call.errs[i] = err
	}
	t.call.waiting.Done()
}

// publish publishes the first event of each ticket. All tickets must be of this call. It returns the tickets that have more
// events, and the error of the destination if that is unavailable.
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
			t.finish(err) // so that all are due at the same time
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
