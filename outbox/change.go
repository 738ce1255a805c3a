package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// Act is an operation of an operator on events that are not published yet.
type Act string

// The acts. None of them changes an event that a relay has leased; the outcome is then InUse.
const (
	// ActRetry makes a pending event due at once: one that is scheduled, or that waits for its next attempt.
	ActRetry Act = "retry"
	// ActReschedule makes a pending event due at Change.At.
	ActReschedule Act = "reschedule"
	// ActCancel removes a scheduled event that no relay has claimed, and its id.
	ActCancel Act = "cancel"
	// ActPark parks a pending or waiting event, with the class operator. It keeps its place in its lane.
	ActPark Act = "park"
	// ActDiscard removes a pending, waiting or parked event, and its id. Its lane continues.
	ActDiscard Act = "discard"
)

// Acts lists the acts.
func Acts() []Act { return []Act{ActRetry, ActReschedule, ActCancel, ActPark, ActDiscard} }

// Change is an act with its reason. Act and Reason are required.
type Change struct {
	Act Act
	// At is the time of ActReschedule by the server's clock.
	At time.Time
	// Reason is recorded in the audit.
	Reason string
}

// Validate returns an error for an unknown act, or for fields that do not fit the act.
func (c Change) Validate() error {
	switch {
	case !slices.Contains(Acts(), c.Act):
		return fmt.Errorf("outbox: change: the act %q does not exist; use one of %v", c.Act, Acts())
	case c.Reason == "":
		return fmt.Errorf("outbox: %s: the reason is empty; set a reason for the audit", c.Act)
	case (c.Act == ActReschedule) == c.At.IsZero():
		return fmt.Errorf("outbox: %s: At is %v; set At for %s only", c.Act, c.At, ActReschedule)
	case !c.At.IsZero() && (c.At.Before(time.UnixMilli(0)) || c.At.Year() > 9999):
		return fmt.Errorf("outbox: reschedule: the time is %v; use the years 1970 to 9999", c.At)
	}
	return nil
}

// why returns the reason in the form of the audit.
func (c Change) why() string {
	if c.At.IsZero() {
		return c.Reason
	}
	return c.Reason + " (to " + c.At.UTC().Format(time.RFC3339) + ")"
}

// script runs the change.
func (c Change) script(s *Store) actScript {
	return func(ctx context.Context, shard shard.Shard, act shard.Act, ids []string) (string, error) {
		return s.scripts.Change(ctx, shard, act, string(c.Act), c.At, ids)
	}
}

// Change changes events of a slot by their ids. If the act does not apply to the state of an event, its outcome is
// WrongState. If Change returns an error, it also returns the answers so far. The store must have an operator; see As.
func (s *Store) Change(ctx context.Context, slotNumber int, c Change, ids ...string) (Answers, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return s.actOn(ctx, string(c.Act), c.why(), slotNumber, ids, c.script(s))
}

// ChangeOptions configure ChangeAll. The zero value changes all events at once.
type ChangeOptions struct {
	// Limit is the maximum number of events to change. Defaults to 0: all.
	Limit int
	// DryRun counts the events and changes nothing. Defaults to false.
	DryRun bool
	// Progress is called in the goroutine of ChangeAll after each step. Defaults to nil.
	Progress func(ChangeResult)
}

// ChangeResult is the result of ChangeAll.
type ChangeResult struct {
	// Operation is the id of the operation in the audit.
	Operation string
	// Matched is the number of events that the state and the filter selected, and Done the number of those that were changed.
	Matched, Done int
	// Skipped counts the other events by outcome.
	Skipped map[Outcome]int
	// Destinations counts the matched events by destination.
	Destinations map[string]int
}

// changeAtOnce is the number of events that one step of ChangeAll changes.
const changeAtOnce = 500

// ChangeAll changes the events of a state that match a filter, each once. Events may change their state meanwhile, so the
// act checks the state of each event again. If ChangeAll returns an error, the result states what was done. The store must
// have an operator; see As.
func (s *Store) ChangeAll(ctx context.Context, state State, f Filter, c Change, opts ChangeOptions) (ChangeResult, error) {
	result := ChangeResult{Skipped: map[Outcome]int{}, Destinations: map[string]int{}}
	if opts.Limit < 0 {
		return result, fmt.Errorf("outbox: ChangeOptions.Limit is %d; use 0 for all, or more", opts.Limit)
	}
	if err := c.Validate(); err != nil {
		return result, err
	}
	why := c.why() + ": " + string(state) + " " + f.String()
	o, err := s.begin(brief(why))
	if err != nil {
		return result, err
	}
	result.Operation = o.act.Operation
	all := changing{operation: o, change: c, opts: opts, result: &result}
	for e, err := range s.List(ctx, state, ListOptions{Filter: f}) {
		if err != nil && e.ID == "" {
			return result, err
		}
		if err := all.add(ctx, e); err != nil {
			return result, err
		}
		if result.Matched == opts.Limit {
			break
		}
	}
	return result, all.flush(ctx)
}

// changing collects events of one slot for the next step.
type changing struct {
	*operation

	change Change
	opts   ChangeOptions
	result *ChangeResult
	slot   int
	ids    []string
	seen   map[string]bool // of the slot; an event that was retried may fail and be listed again
}

func (c *changing) add(ctx context.Context, e Event) error {
	if e.Slot != c.slot || len(c.ids) == changeAtOnce {
		if err := c.flush(ctx); err != nil {
			return err
		}
	}
	if e.Slot != c.slot || c.seen == nil {
		c.slot, c.seen = e.Slot, map[string]bool{}
	}
	if c.seen[e.ID] {
		return nil
	}
	c.seen[e.ID] = true
	c.result.Matched++
	c.result.Destinations[e.Destination]++
	c.ids = append(c.ids, e.ID)
	return nil
}

func (c *changing) flush(ctx context.Context) error {
	ids := c.ids
	c.ids = nil
	if len(ids) == 0 {
		return nil
	}
	if !c.opts.DryRun {
		answers, err := c.call(ctx, string(c.change.Act), c.slot, ids, c.change.script(c.store))
		if err != nil {
			return err
		}
		for _, a := range answers {
			if a.Outcome == Done {
				c.result.Done++
			} else {
				c.result.Skipped[a.Outcome]++
			}
		}
	}
	if c.opts.Progress != nil {
		c.opts.Progress(*c.result)
	}
	return nil
}
