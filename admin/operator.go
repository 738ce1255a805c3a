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
	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/repair"
)

// OperatorConfig configures an Operator. Client and Name are required.
type OperatorConfig struct {
	// Client is the client of the Transactor.
	Client redis.UniversalClient
	// Name is the operator's name for the audit.
	Name string
	// Destinations returns an error for a destination that events may not be re-armed to: a relay.HTTP with URLFor may send
	// them wherever an operator says. Defaults to nil: an Operator accepts any destination, an httpapi.Handler none.
	Destinations func(destination string) error
}

// shardsAtOnce is the number of concurrent scripts, one for each shard.
const shardsAtOnce = 8

func (c OperatorConfig) validate() error {
	switch {
	case c.Client == nil:
		return errors.New("admin: OperatorConfig.Client is nil; use the client of the Transactor")
	case c.Name == "":
		return errors.New("admin: OperatorConfig.Name is empty; set the operator's name for the audit")
	}
	return nil
}

// Operator reads the shards of a Transactor and acts on them. It is safe for concurrent use, and beside commits and relays. Its
// scripts read bounded pages, so none blocks the server for long.
type Operator struct {
	handle

	transactor *luatx.Transactor
	scripts    *shard.Scripts
	core       *parts.Core
	repair     *repair.Worker
}

// handle is unexported here, so that an Operator shows no field.
type handle = parts.Handle

// NewOperator returns the Operator of a Transactor. It does no I/O. A Transactor that was made for the operator alone
// must have the service's Namespace, Keyspace and Retention, and its capacities.
func NewOperator(t *luatx.Transactor, cfg OperatorConfig) (*Operator, error) {
	if t == nil {
		return nil, errors.New("admin: the Transactor is nil; use the result of luatx.New")
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	worker, err := repair.New(t, repair.Config{})
	if err != nil {
		return nil, err
	}
	return newOperator(parts.Core{
		Transactor: t, Client: cfg.Client, Scripts: link.Of(t).Scripts, Name: cfg.Name, Destinations: cfg.Destinations,
		Store:     outbox.NewStore(t).As(cfg.Name).WithDestinations(cfg.Destinations),
		Processes: process.New(cfg.Client, t.Config().Namespace, t.Config().Logger),
		History:   link.Of(t).History,
	}, worker), nil
}

func newOperator(core parts.Core, worker *repair.Worker) *Operator {
	return &Operator{parts.NewHandle(&core), core.Transactor, core.Scripts, &core, worker}
}

// As returns the operator under another name, which the audit records.
func (o *Operator) As(name string) *Operator {
	core := *o.core
	core.Name, core.Store = name, o.core.Store.As(name)
	return newOperator(core, o.repair)
}

// Outbox lists, shows, re-arms, discards, erases, exports and imports events, in the operator's name.
func (o *Operator) Outbox() *outbox.Store { return o.core.Store }

// Check lists the inconsistencies of shards, as repair.Worker does; Fix repairs them. Marks older than the Transactor's Retention
// are stale.
func (o *Operator) Check(ctx context.Context, slots ...int) iter.Seq2[repair.Finding, error] {
	return o.repair.Check(ctx, slots...)
}

// Fix is Check and repairs the findings.
func (o *Operator) Fix(ctx context.Context, slots ...int) iter.Seq2[repair.Finding, error] {
	return o.repair.Fix(ctx, slots...)
}

// Audit lists the acts of operators on outbox and inbox since a time, oldest first.
func (o *Operator) Audit(ctx context.Context, since time.Time) iter.Seq2[outbox.Record, error] {
	return o.core.Store.Audit(ctx, since)
}

// Stats sums up all shards.
type Stats struct {
	// At is the time of the sums by the server's clock.
	At time.Time
	// Counts has the number of events in each state, and the counters of the shards since their first commit.
	Counts outbox.Counts
	// Oldest is the age of the longest-overdue event.
	Oldest time.Duration
	// OldestUnpublished is for how long an event has not been published that should be. It includes, beside Oldest, the events that
	// wait behind a parked one, since that was parked, and those that relays try again, since the first of their failures that is
	// remembered, also while they are leased.
	OldestUnpublished time.Duration
	// Blocked sums up the events that wait behind a parked one.
	Blocked Blocked
	// Parked breaks the parked events down by type, destination and class of failure.
	Parked outbox.Overview
	// Paused lists the paused destinations.
	Paused []Pause
}

// Stats sums up all shards. It reads counters, and a bounded number of events where some are blocked or have failed.
func (o *Operator) Stats(ctx context.Context) (s Stats, err error) {
	if s.At, err = o.core.Client.Time(ctx).Result(); err != nil {
		return s, fmt.Errorf("admin: stats: %w", err)
	}
	var errs [6]error
	var failing time.Time
	var group sync.WaitGroup
	group.Go(func() { s.Counts, errs[0] = o.core.Store.Counts(ctx) })
	group.Go(func() { s.Oldest, errs[1] = o.core.Store.Oldest(ctx) })
	group.Go(func() { s.Parked, errs[2] = o.core.Store.Overview(ctx) })
	group.Go(func() { s.Paused, errs[3] = o.Paused(ctx) })
	group.Go(func() {
		blocked, err := o.scripts.Blocked(ctx, o.transactor.Keyspace().Slots())
		s.Blocked, errs[4] = Blocked(blocked), statsError("blocked keys", err)
	})
	group.Go(func() {
		since, err := o.scripts.FailingSince(ctx, o.transactor.Keyspace().Slots())
		failing, errs[5] = since, statsError("failed events", err)
	})
	group.Wait()
	s.OldestUnpublished = s.Oldest
	for _, since := range []time.Time{s.Blocked.Since, failing} {
		if !since.IsZero() {
			s.OldestUnpublished = max(s.OldestUnpublished, s.At.Sub(since))
		}
	}
	return s, errors.Join(errs[:]...)
}

func statsError(of string, err error) error {
	if err != nil {
		return fmt.Errorf("admin: stats: %s: %w", of, err)
	}
	return nil
}

// Rates are events per second.
type Rates struct {
	Enqueued float64 `json:"enqueued"`
	Sent     float64 `json:"sent"`
	Failed   float64 `json:"failed"`
	Parked   float64 `json:"parked"`
}

// Rates returns the events per second since an earlier Stats. It is zero if no time has passed.
func (s Stats) Rates(before Stats) Rates {
	seconds := s.At.Sub(before.At).Seconds()
	if seconds <= 0 {
		return Rates{}
	}
	now, then := s.Counts.Totals, before.Counts.Totals
	rate := func(now, then int64) float64 { return float64(max(0, now-then)) / seconds }
	return Rates{rate(now.Enqueued, then.Enqueued), rate(now.Sent, then.Sent), rate(now.Failed, then.Failed), rate(now.Parked, then.Parked)}
}

// Reason is a class of failures with its number of parked events.
type Reason struct {
	Class  string `json:"class"`
	Events int64  `json:"events"`
}

// Top returns at most n classes, those with the most parked events first.
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

// Find lists the events with an id over all shards, in any state. Events of several shards may have the same id. An event whose
// body cannot be decoded comes with the error, and the list continues.
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
		for chunk := range slices.Chunk(slots, shardsAtOnce) {
			replies := make([]found, len(chunk))
			var group sync.WaitGroup
			for i, n := range chunk {
				group.Go(func() { replies[i].event, replies[i].err = o.core.Store.Show(ctx, n, id) })
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

// existing returns the slots of shards that hold data.
func (o *Operator) existing(ctx context.Context) ([]int, error) {
	var all []int
	for chunk := range slices.Chunk(o.transactor.Keyspace().Slots(), slotsAtOnce) {
		found, _, err := o.scripts.Existing(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("admin: find shards from slot %d: %w", chunk[0], err)
		}
		all = append(all, found...)
	}
	return all, nil
}
