package outbox

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

// ground provides the events that a bulk operation re-arms.
type ground interface {
	// each lists the events to re-arm.
	each(ctx context.Context, yield func(Event, error) bool)
	// rearm re-arms events of one slot.
	rearm(ctx context.Context, slot int, ids []string) (Answers, error)
	// look returns the current state of those events that still exist.
	look(ctx context.Context, slot int, ids []string) ([]Event, error)
	// failures returns the events that were parked in a slot since the last call.
	failures(ctx context.Context, slot int) ([]Event, error)
}

const (
	// maxCanary is the maximum number of events that are polled together.
	maxCanary = 1000
	// lookEvery is the interval at which the state of the re-armed events is polled.
	lookEvery = 50 * time.Millisecond
	// rearmBatch is the maximum number of events that are re-armed between two polls.
	rearmBatch = 500
	// turnsPerSecond is how often per second events are re-armed if they have a rate.
	turnsPerSecond = 10
)

// bulk re-arms events: first a canary and then the others, at a rate, unless too many of them park again.
type bulk struct {
	ground

	opts   RearmOptions
	result RearmResult

	next  func() (Event, error, bool)
	own   map[int]map[string]bool // by slot: events that were re-armed and have not parked again
	since time.Time               // of the last poll of failures
	pause time.Duration           // until the next poll
}

func (c *bulk) run(ctx context.Context) error {
	c.result.Skipped, c.result.Classes, c.own = map[Outcome]int{}, map[string]int{}, map[int]map[string]bool{}
	var stop func()
	c.next, stop = iter.Pull2(func(yield func(Event, error) bool) { c.each(ctx, yield) })
	defer stop()
	if c.opts.DryRun {
		return c.count()
	}
	if c.opts.Canary > 0 {
		if err := c.canary(ctx); err != nil || c.result.Stopped != "" {
			return err
		}
	}
	return c.others(ctx)
}

// count performs a dry run.
func (c *bulk) count() error {
	for {
		batch, err := c.nextBatch(rearmBatch)
		for _, e := range batch {
			c.result.Classes[e.Class]++
		}
		if err != nil || len(batch) == 0 {
			return err
		}
		c.reportProgress()
	}
}

// reportProgress passes the current result to Progress.
func (c *bulk) reportProgress() {
	if c.opts.Progress == nil {
		return
	}
	now := c.result
	now.Skipped, now.Classes = maps.Clone(now.Skipped), maps.Clone(now.Classes)
	c.opts.Progress(now)
}

// nextBatch returns up to n events within the limit. A dry run counts them as if they were re-armed.
func (c *bulk) nextBatch(n int) ([]Event, error) {
	if c.opts.Limit > 0 {
		armed := c.result.Rearmed
		if c.opts.DryRun {
			armed = c.result.Matched
		}
		n = min(n, c.opts.Limit-armed)
	}
	var batch []Event
	for len(batch) < n {
		e, err, more := c.next()
		switch {
		case !more:
			return batch, nil
		case err != nil && e.ID == "":
			return batch, err
		}
		c.result.Matched++ // counts invalid bodies too: another relay may decode them
		if e.bare {
			c.result.Skipped[NoBody]++
			continue
		}
		batch = append(batch, e)
	}
	return batch, nil
}

// send re-arms a batch, slot by slot.
func (c *bulk) send(ctx context.Context, batch []Event) (armed []Event, err error) {
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].Slot == batch[0].Slot {
			n++
		}
		ids := make([]string, n)
		for i, e := range batch[:n] {
			ids[i] = e.ID
		}
		answers, err := c.rearm(ctx, batch[0].Slot, ids)
		if err != nil {
			return armed, err
		}
		for i, answer := range answers {
			if answer.Outcome == Done {
				armed = append(armed, batch[i])
				c.note(batch[i])
				continue
			}
			c.result.Skipped[answer.Outcome]++
			if answer.Outcome == Full {
				c.result.Stopped = StoppedFull
			}
		}
		if c.result.Stopped != "" {
			return armed, nil
		}
		batch = batch[n:]
	}
	return armed, nil
}

func (c *bulk) note(e Event) {
	c.result.Rearmed++
	if c.own[e.Slot] == nil {
		c.own[e.Slot] = map[string]bool{}
	}
	c.own[e.Slot][e.ID] = true
}

// canary re-arms the first events and waits until their fate is known, or for CanaryWait.
func (c *bulk) canary(ctx context.Context) error {
	var first []Event
	for c.result.Stopped == "" {
		batch, err := c.nextBatch(c.opts.Canary - len(first))
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			break
		}
		armed, err := c.send(ctx, batch)
		if first = append(first, armed...); err != nil {
			return err
		}
	}
	deadline, next := time.After(c.opts.CanaryWait), time.Tick(lookEvery)
	for over := false; ; {
		failed, err := c.fates(ctx, first)
		if err != nil {
			return err
		}
		c.reportProgress()
		state := c.result.Canary
		if c.tooMany(state.ParkedAgain) || over && c.tooMany(state.ParkedAgain+state.Trying) {
			c.result.Stopped, c.result.Class = StoppedByCanary, commonest(failed)
			return nil
		}
		if over || state.Trying == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			over = true
		case <-next:
		}
	}
}

func (c *bulk) tooMany(n int) bool {
	return c.opts.MaxParkedAgain >= 0 && n > c.opts.MaxParkedAgain
}

// fates polls the state of the canary and returns the number of its failures by class.
func (c *bulk) fates(ctx context.Context, first []Event) (map[string]int, error) {
	fate, failed := Canary{Sent: len(first)}, map[string]int{} // an event that is gone was sent and is not remembered
	type name struct {
		slot int
		id   string
	}
	before, ids := map[name]Failure{}, map[int][]string{}
	for _, e := range first {
		before[name{e.Slot, e.ID}] = e.last()
		ids[e.Slot] = append(ids[e.Slot], e.ID)
	}
	again := map[string]int{}
	for _, n := range slices.Sorted(maps.Keys(ids)) {
		now, err := c.look(ctx, n, ids[n])
		if err != nil {
			return nil, err
		}
		for _, e := range now {
			switch e.State {
			case Sent:
				continue
			case Parked:
				fate.ParkedAgain++
				again[e.Class]++
				failed[e.Class]++
			default:
				fate.Trying++
				if e.last() != before[name{n, e.ID}] { // it has failed since it was re-armed
					failed[e.Class]++
				}
			}
			fate.Sent--
		}
	}
	c.result.Canary, c.result.ParkedAgain, c.result.Classes = fate, fate.ParkedAgain, again
	return failed, nil
}

// commonest returns the class with the most failures.
func commonest(classes map[string]int) string {
	best := ""
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		if best == "" || classes[class] > classes[best] {
			best = class
		}
	}
	return best
}

// others re-arms the remaining events.
func (c *bulk) others(ctx context.Context) error {
	batch, start, armed := rearmBatch, time.Now(), 0
	if c.opts.Rate > 0 {
		batch = max(1, min(rearmBatch, int(c.opts.Rate/turnsPerSecond)))
	}
	c.forgetCanary()
	for {
		events, err := c.nextBatch(batch)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return c.check(ctx)
		}
		done, err := c.send(ctx, events)
		c.reportProgress()
		if err != nil || c.result.Stopped != "" {
			return err
		}
		if time.Since(c.since) >= c.pause {
			if err := c.check(ctx); err != nil || c.result.Stopped != "" {
				return err
			}
		}
		if armed += len(done); c.opts.Rate > 0 {
			due := start.Add(time.Duration(float64(armed) / c.opts.Rate * float64(time.Second)))
			if !sleep.For(ctx, time.Until(due)) {
				return context.Cause(ctx)
			}
		}
	}
}

// forgetCanary resets the failures of the canary, because check counts them again.
func (c *bulk) forgetCanary() { c.result.ParkedAgain, c.result.Classes = 0, map[string]int{} }

// check counts the events that parked again, and stops the bulk operation if there are too many.
func (c *bulk) check(ctx context.Context) error {
	start := time.Now()
	for _, n := range slices.Sorted(maps.Keys(c.own)) {
		parked, err := c.failures(ctx, n)
		if err != nil {
			return err
		}
		for _, e := range parked {
			if c.own[n][e.ID] {
				delete(c.own[n], e.ID)
				c.result.ParkedAgain++
				c.result.Classes[e.Class]++
			}
		}
	}
	c.since = time.Now()
	c.pause = max(lookEvery, 10*c.since.Sub(start)) // polling many shards takes long
	if c.tooMany(c.result.ParkedAgain) {
		c.result.Stopped, c.result.Class = StoppedByFailures, commonest(c.result.Classes)
	}
	return nil
}
