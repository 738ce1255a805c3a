package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// verifying reports whether tests may take long.
func verifying() bool { return os.Getenv("LUATX_VERIFY") != "" }

// load is a number of callers that commit while faults occur. It records their results for the audit.
type load struct {
	t          testing.TB
	tr         *luatx.Transactor
	aggregates []string

	mu    sync.Mutex
	calls []*call
	acked map[string]int // by aggregate

	outages []outage
	resumed []time.Duration // from a takeover by a new master to its first acknowledged commit
}

// call is one call of Transact with its result.
type call struct {
	name      string // unique, also the name of its effect and of its event
	aggregate string
	id        string // may be empty
	outcome   luatx.Outcome
	err       error
	count     *redis.IntCmd // counts its effect
	overdue   bool          // its own deadline had passed
	at        time.Time     // when the call returned
}

// in reports whether the caller's own effect was acknowledged.
func (c *call) in() bool { return c.outcome == luatx.Committed || c.outcome == luatx.Replayed }

func newLoad(t testing.TB, tr *luatx.Transactor, aggregates ...string) *load {
	t.Helper()
	return &load{t: t, tr: tr, aggregates: aggregates, acked: make(map[string]int)}
}

// do makes one call: its own effect, a count and an event.
func (l *load) do(ctx context.Context, tr *luatx.Transactor, name, aggregate, id string) *call {
	c := &call{name: name, aggregate: aggregate, id: id}
	var opts []luatx.Option
	if id != "" {
		opts = append(opts, luatx.WithID(id))
	}
	result, err := tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
		p := tx.Pipeline()
		c.count = p.HIncrBy(ctx, rig.Key(l.t, tr, aggregate, "effects"), name, 1)
		p.SAdd(ctx, rig.Key(l.t, tr, aggregate, "names"), name)
		p.Incr(ctx, rig.Key(l.t, tr, aggregate, "count"))
		return tx.Emit(luatx.Event{ID: name, Data: name})
	}, opts...)
	c.outcome, c.err, c.overdue, c.at = result.Outcome, err, ctx.Err() != nil, time.Now()
	if deadline, ok := ctx.Deadline(); ok && !c.at.Before(deadline) {
		c.overdue = true // its context ends a moment later
	}
	return c
}

// call makes one call and records it.
func (l *load) call(ctx context.Context, name, aggregate, id string) {
	c := l.do(ctx, l.tr, name, aggregate, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
	if c.err == nil {
		l.acked[aggregate]++
	}
}

// ackedOn returns the number of acknowledged calls on an aggregate.
func (l *load) ackedOn(aggregate string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked[aggregate]
}

// effects holds the names of the calls whose effect is on the server.
type effects map[string]bool

// look reads the effects, and checks that each is present once and complete, with its event, its member and its count.
func (l *load) look(ctx context.Context, client redis.UniversalClient) effects {
	l.t.Helper()
	all, events := make(effects), make(effects)
	slots := make(map[int]bool)
	for _, aggregate := range l.aggregates {
		k := func(part string) string { return rig.Key(l.t, l.tr, aggregate, part) }
		applied, err := client.HGetAll(ctx, k("effects")).Result()
		redistest.Must(l.t, err)
		for name, times := range applied {
			all[name] = true
			if times != "1" {
				l.t.Errorf("%s has its effect %s times", name, times)
			}
		}
		names := client.SMembers(ctx, k("names")).Val()
		slices.Sort(names)
		if !slices.Equal(names, slices.Sorted(maps.Keys(applied))) {
			l.t.Errorf("aggregate %s: %d members of %d effects", aggregate, len(names), len(applied))
		}
		if n, _ := client.Get(ctx, k("count")).Int(); n != len(applied) {
			l.t.Errorf("aggregate %s: counted %d of %d effects", aggregate, n, len(applied))
		}
		slots[slot.OfTag(aggregate)] = true
	}
	for n := range slots {
		shard := link.Of(l.tr).Scripts.Shard(n)
		bodies := client.HGetAll(ctx, shard.Key("entries")).Val()
		for name, body := range bodies {
			events[name] = true
			if want := fmt.Sprintf(`+{"specversion":"1.0","id":%q,"data":%q}`, name, name); body != want {
				l.t.Errorf("the event of %s has the body %q", name, body)
			}
		}
		if waiting := client.ZCard(ctx, shard.Key("pending")).Val(); waiting != int64(len(bodies)) {
			l.t.Errorf("slot %d: %d events, %d of them pending", n, len(bodies), waiting)
		}
	}
	if !maps.Equal(all, events) {
		l.t.Errorf("%d effects and %d events, which are not the same", len(all), len(events))
	}
	return all
}

// outcomeCounts counts the results of the calls.
type outcomeCounts struct {
	committed, replayed, duplicate, failed, unknown, lost int
	errs                                                  map[string]int
}

func (n outcomeCounts) String() string {
	return fmt.Sprintf("%d committed, %d replayed, %d duplicate, %d failed, %d of unknown outcome, %d lost; errors %v",
		n.committed, n.replayed, n.duplicate, n.failed, n.unknown, n.lost, n.errs)
}

// audit compares the results of the calls with the data. A missing effect needs an excuse: a fault of the test that may
// lose acknowledged commits. Then audit sends every id once more. Afterwards, all of them must be applied, and none twice.
func (l *load) audit(ctx context.Context, client redis.UniversalClient, excused func(*call) bool) outcomeCounts {
	l.t.Helper()
	there := l.look(ctx, client)
	n := outcomeCounts{errs: make(map[string]int)}
	byID := make(map[string][]*call)
	for _, c := range l.calls {
		if c.id != "" {
			byID[c.id] = append(byID[c.id], c)
		}
		l.count(&n, c)
		switch {
		case c.in() && !there[c.name]:
			n.lost++
			if !excused(c) {
				l.t.Errorf("%s on %s returned %v at %v, but is not applied", c.name, c.aggregate, c.outcome, c.at)
			}
		case !c.in() && !errors.Is(c.err, luatx.ErrOutcomeUnknown) && there[c.name]:
			l.t.Errorf("%s returned %v, %v, but is applied", c.name, c.outcome, c.err)
		}
		l.checkReply(c)
	}
	l.repeat(ctx, client, byID, there)
	return n
}

func (l *load) count(n *outcomeCounts, c *call) {
	switch {
	case c.outcome == luatx.Committed:
		n.committed++
	case c.outcome == luatx.Replayed:
		n.replayed++
	case c.outcome == luatx.Duplicate:
		n.duplicate++
	case errors.Is(c.err, luatx.ErrOutcomeUnknown):
		n.unknown++
		if !c.overdue {
			l.t.Errorf("%s: unknown before its deadline: %v", c.name, c.err)
		}
	default:
		n.failed++
	}
	if c.err != nil {
		n.errs[kind(c.err)]++
	}
}

// kind returns the common part of errors that differ in addresses and numbers.
func kind(err error) string {
	text := err.Error()
	for _, word := range []string{"outcome unknown", "came too late", "READONLY", "deadline exceeded", "refused", "reset by peer", "EOF"} {
		if strings.Contains(text, word) {
			return word
		}
	}
	return text
}

// checkReply checks that a call has the reply of its command if it committed, and an error otherwise.
func (l *load) checkReply(c *call) {
	switch {
	case c.outcome == luatx.Committed && (c.count.Err() != nil || c.count.Val() != 1),
		c.outcome > luatx.Committed && !errors.Is(c.count.Err(), luatx.ErrRepliesLost),
		c.err != nil && c.count != nil && c.count.Err() == nil:
		l.t.Errorf("%s returned %v, %v; its command returned %v", c.name, c.outcome, c.err, c.count)
	}
}

// repeat sends every id again. It must commit if no call with the id was applied, and be a duplicate otherwise.
func (l *load) repeat(ctx context.Context, client redis.UniversalClient, byID map[string][]*call, before effects) {
	l.t.Helper()
	tr, err := luatx.New(client, l.tr.Config())
	redistest.Must(l.t, err)
	ids := make(chan string)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for id := range ids {
				in := 0
				for _, c := range byID[id] {
					if before[c.name] {
						in++
					}
				}
				want := luatx.Committed
				if in > 0 {
					want = luatx.Duplicate
				}
				again := l.do(ctx, tr, "again-"+id, byID[id][0].aggregate, id)
				if again.err != nil || again.outcome != want || in > 1 {
					l.t.Errorf("id %s, in %d times, sent again: %v, %v; want %v", id, in, again.outcome, again.err, want)
				}
			}
		})
	}
	for id := range byID {
		ids <- id
	}
	close(ids)
	workers.Wait()
	total := 0
	for name := range l.look(ctx, client) {
		if strings.HasPrefix(name, "again-") || before[name] {
			total++
		}
	}
	anonymous := 0
	for _, c := range l.calls {
		if c.id == "" && before[c.name] {
			anonymous++
		}
	}
	if total != len(byID)+anonymous {
		l.t.Errorf("%d effects of %d ids and %d calls without one", total, len(byID), anonymous)
	}
}
