package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/script"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/repair"
)

// OperatorConfig configures an Operator. Client and Name are required.
type OperatorConfig struct {
	// Client is that of the Transactor.
	Client redis.UniversalClient
	// Name is who acts, for the audit.
	Name string
	// AtOnce is how many shards are asked at a time where each needs a script of its own. Defaults to 8; at most 64.
	AtOnce int
	// Destinations returns an error for a destination that events may not be re-armed to: a relay.HTTP with URLFor may send
	// them wherever an operator says. Defaults to nil: an Operator accepts any destination, a Handler none.
	Destinations func(destination string) error
	// Repair is how Check and Fix go about it.
	Repair repair.Config
}

const maxAtOnce = 64

func (c OperatorConfig) validate() error {
	switch {
	case c.Client == nil:
		return errors.New("admin: OperatorConfig.Client is nil: use the Transactor's")
	case c.Name == "":
		return errors.New("admin: OperatorConfig.Name is empty: name who acts, it is recorded")
	case c.AtOnce < 1 || c.AtOnce > maxAtOnce:
		return fmt.Errorf("admin: OperatorConfig.AtOnce is %d: use 0 for the default, or 1 to %d", c.AtOnce, maxAtOnce)
	}
	return nil
}

// Operator looks at the shards of a Transactor, and acts on them. It is safe for concurrent use, beside commits and
// relays. Nothing that it does blocks the server for long: scripts look at bounded pages.
type Operator struct {
	transactor *luatx.Transactor
	scripts    *script.Set
	store      *outbox.Store
	repair     *repair.Worker
	cfg        OperatorConfig
}

// NewOperator returns the Operator of a Transactor. It does no I/O. A Transactor that was made for the operator alone
// must have the service's Namespace, Keyspace and Retention, and its capacities.
func NewOperator(t *luatx.Transactor, cfg OperatorConfig) (*Operator, error) {
	if t == nil {
		return nil, errors.New("admin: NewOperator needs a Transactor")
	}
	cfg.AtOnce = cmp.Or(cfg.AtOnce, 8)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	worker, err := repair.New(t, cfg.Repair)
	if err != nil {
		return nil, err
	}
	return &Operator{t, t.Scripts(), outbox.NewStore(t).As(cfg.Name).WithDestinations(cfg.Destinations), worker, cfg}, nil
}

// As returns the operator in another name: it acts, and is recorded, as that.
func (o *Operator) As(name string) *Operator {
	named := *o
	named.cfg.Name, named.store = name, o.store.As(name)
	return &named
}

// guarded returns the operator for a Handler, whose callers set no destination unless the configuration allows it.
func (o *Operator) guarded() *Operator {
	if o.cfg.Destinations != nil {
		return o
	}
	guarded := *o
	guarded.cfg.Destinations = func(string) error { return errNoDestinations }
	guarded.store = o.store.WithDestinations(guarded.cfg.Destinations)
	return &guarded
}

var errNoDestinations = errors.New("set OperatorConfig.Destinations, or luatx serve --destination, to allow some")

// Outbox lists, shows, re-arms, discards, erases, exports and imports events, in the operator's name.
func (o *Operator) Outbox() *outbox.Store { return o.store }

// Check lists what disagrees in shards, and Fix settles it: see repair.Worker. What is older than the Transactor's
// Retention is taken for stale.
func (o *Operator) Check(ctx context.Context, slots ...int) iter.Seq2[repair.Finding, error] {
	return o.repair.Check(ctx, slots...)
}

// Fix is Check, and settles what it finds.
func (o *Operator) Fix(ctx context.Context, slots ...int) iter.Seq2[repair.Finding, error] {
	return o.repair.Fix(ctx, slots...)
}

// Audit lists what operators did since a time, in the outbox and in the inbox, oldest first.
func (o *Operator) Audit(ctx context.Context, since time.Time) iter.Seq2[outbox.Record, error] {
	return o.store.Audit(ctx, since)
}

// Stats is all shards at a glance.
type Stats struct {
	// At is when, by the server's clock.
	At time.Time
	// Counts is how many events are in each state, and what the shards have counted since they began.
	Counts outbox.Counts
	// Oldest is for how long the event has been due that is due the longest.
	Oldest time.Duration
	// Parked says what is parked, and why.
	Parked outbox.Overview
	// Paused are the destinations that nothing is published to for now.
	Paused []Pause
}

// Stats adds up all shards. It reads sums that are kept, and no events.
func (o *Operator) Stats(ctx context.Context) (s Stats, err error) {
	if s.At, err = o.cfg.Client.Time(ctx).Result(); err != nil {
		return s, fmt.Errorf("admin: stats: %w", err)
	}
	var errs [4]error
	var group sync.WaitGroup
	group.Go(func() { s.Counts, errs[0] = o.store.Counts(ctx) })
	group.Go(func() { s.Oldest, errs[1] = o.store.Oldest(ctx) })
	group.Go(func() { s.Parked, errs[2] = o.store.Overview(ctx) })
	group.Go(func() { s.Paused, errs[3] = o.Paused(ctx) })
	group.Wait()
	return s, errors.Join(errs[:]...)
}

// Rates are events a second.
type Rates struct {
	Enqueued float64 `json:"enqueued"`
	Sent     float64 `json:"sent"`
	Failed   float64 `json:"failed"`
	Parked   float64 `json:"parked"`
}

// Rates says what has happened a second since another look. It is zero where no time has passed.
func (s Stats) Rates(before Stats) Rates {
	seconds := s.At.Sub(before.At).Seconds()
	if seconds <= 0 {
		return Rates{}
	}
	now, then := s.Counts.Totals, before.Counts.Totals
	rate := func(now, then int64) float64 { return float64(max(0, now-then)) / seconds }
	return Rates{rate(now.Enqueued, then.Enqueued), rate(now.Sent, then.Sent), rate(now.Failed, then.Failed), rate(now.Parked, then.Parked)}
}

// Reason is a class of failures and how many events are parked for it.
type Reason struct {
	Class  string `json:"class"`
	Events int64  `json:"events"`
}

// Top returns the classes that most events are parked for, at most n of them.
func (s Stats) Top(n int) []Reason {
	var all []Reason
	for class, events := range s.Parked.ByClass {
		if events > 0 {
			all = append(all, Reason{class, events})
		}
	}
	slices.SortFunc(all, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Class, b.Class)) })
	return all[:max(0, min(n, len(all)))]
}

// Find lists the events of an id over all shards, in whatever state they are: the same id may be that of several, each
// in a shard of its own. A body that cannot be decoded comes with the error, and the list goes on.
func (o *Operator) Find(ctx context.Context, id string) iter.Seq2[outbox.Event, error] {
	type found struct {
		event outbox.Event
		err   error
	}
	return func(yield func(outbox.Event, error) bool) {
		slots, err := o.existing(ctx)
		if err != nil {
			yield(outbox.Event{}, err)
			return
		}
		for chunk := range slices.Chunk(slots, o.cfg.AtOnce) {
			replies := make([]found, len(chunk))
			var group sync.WaitGroup
			for i, n := range chunk {
				group.Go(func() { replies[i].event, replies[i].err = o.store.Show(ctx, n, id) })
			}
			group.Wait()
			for _, f := range replies {
				if errors.Is(f.err, outbox.ErrNotFound) {
					continue
				}
				if !yield(f.event, f.err) || f.err != nil && f.event.ID == "" {
					return
				}
			}
		}
	}
}

// slotsAtOnce are asked in one pipeline.
const slotsAtOnce = 256

// existing are the slots whose shards hold anything.
func (o *Operator) existing(ctx context.Context) ([]int, error) {
	var all []int
	for chunk := range slices.Chunk(o.transactor.Keyspace().Slots(), slotsAtOnce) {
		found, _, err := o.scripts.Existing(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("admin: looking for shards from slot %d on: %w", chunk[0], err)
		}
		all = append(all, found...)
	}
	return all, nil
}
