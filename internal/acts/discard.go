package acts

import (
	"context"
	"errors"
	"time"

	"github.com/luatx/luatx/outbox"
)

// discardAtOnce is the number of events that one step discards.
const discardAtOnce = 500

// Discarding describes which parked events to discard, and why.
type Discarding struct {
	Filter outbox.Filter
	Reason string
	// DryRun only calls Step and discards nothing.
	DryRun bool
	// Limit is the maximum number of events to discard. Zero means no limit.
	Limit int
	// Before keeps events that were parked after this time, and Filter.OlderThan counts back from it. The zero time keeps none.
	Before time.Time
	// Step is called with the events of one slot and the result for each; in a dry run, with the events alone.
	Step func([]outbox.Event, outbox.Answers)
}

// Run discards the events.
func (d Discarding) Run(ctx context.Context, store *outbox.Store) error {
	var batch []outbox.Event
	matched, before := 0, d.Before.Add(-d.Filter.OlderThan)
	for e, err := range store.Parked(ctx, d.Filter) {
		if err != nil && e.ID == "" {
			return errors.Join(err, d.step(ctx, store, batch))
		}
		if !d.Before.IsZero() && e.At.After(before) {
			continue
		}
		if len(batch) == discardAtOnce || len(batch) > 0 && batch[0].Slot != e.Slot {
			if err := d.step(ctx, store, batch); err != nil {
				return err
			}
			batch = nil
		}
		batch = append(batch, e)
		if matched++; matched == d.Limit {
			break
		}
	}
	return d.step(ctx, store, batch)
}

// step discards events of one slot.
func (d Discarding) step(ctx context.Context, store *outbox.Store, batch []outbox.Event) (err error) {
	if len(batch) == 0 {
		return nil
	}
	var answers outbox.Answers
	if !d.DryRun {
		ids := make([]string, len(batch))
		for i, e := range batch {
			ids[i] = e.ID
		}
		answers, err = store.Discard(ctx, batch[0].Slot, d.Reason, ids...)
	}
	d.Step(batch, answers)
	return err
}
