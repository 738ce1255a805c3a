package trigger

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

const (
	// maxRetries is the number of waiting failed entries at which the trigger stops receiving.
	maxRetries = 1000
	// glance is the time that the driver waits for a new delivery while a retry is due.
	glance = time.Millisecond
)

// retries are failed entries that wait until they are due. They occupy no place, but stay in flight for the driver, so that it
// keeps them from other consumers.
type retries struct {
	mu   sync.Mutex
	list []retry // ordered by their due time

	lastWasRetry bool // whether the last delivery was a retry; belongs to the place that has the turn
}

// retry does not keep the fields of its entry. The next delivery reads them again.
type retry struct {
	due  time.Time
	open *unfinished
	done func(settled bool)
}

func (r *retries) add(one retry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, _ := slices.BinarySearchFunc(r.list, one, func(a, b retry) int { return a.due.Compare(b.due) })
	r.list = slices.Insert(r.list, at, one)
}

// pop removes the retry that has been due for longest, or any retry if all is set. It returns false if there is none.
func (r *retries) pop(all bool) (one retry, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 || !all && time.Now().Before(r.list[0].due) {
		return one, false
	}
	one = r.list[0]
	r.list = slices.Delete(r.list, 0, 1)
	return one, true
}

// wait returns how long it takes until a retry is due, at most limit, and whether there are too many to receive more.
func (r *retries) wait(limit time.Duration) (d time.Duration, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		return limit, false
	}
	return min(limit, max(time.Until(r.list[0].due), 0)), len(r.list) >= maxRetries
}

// postpone takes a failed delivery out of its place until it is due.
func (r *running) postpone(w *work, delay time.Duration) {
	r.counts.retrying.Add(1)
	r.counts.inFlight.Add(-1)
	r.retries.add(retry{time.Now().Add(delay), w.open, w.d.done})
}

// giveBack lets the driver deliver a failed entry again.
func (r *running) giveBack(one retry) {
	r.counts.retrying.Add(-1)
	r.progress.end(one.open, false)
	one.done(false)
}

// giveBackAll returns every failed entry to the driver when the trigger stops.
func (r *running) giveBackAll() {
	for one, ok := r.retries.pop(true); ok; one, ok = r.retries.pop(true) {
		r.giveBack(one)
	}
}

// next waits for a delivery. Retries that are due and other deliveries take turns, so that neither keeps the other waiting.
func (p *place) next(ctx context.Context) (*Delivery, error) {
	wait, full := p.retries.wait(p.cfg.BlockTimeout)
	if p.failures > 0 { // the driver may still be failing: retries stay here until it delivers
		return p.driver.NextDelivery(ctx, p.cfg.BlockTimeout)
	}
	if wait > 0 && full {
		sleep.For(ctx, wait)
		return nil, ctx.Err()
	}
	if wait > 0 || p.retries.lastWasRetry && !full {
		p.retries.lastWasRetry = false
		d, err := p.driver.NextDelivery(ctx, max(wait, glance))
		if d != nil || err != nil || wait > 0 {
			return d, err
		}
	}
	if one, ok := p.retries.pop(false); ok {
		p.retries.lastWasRetry = true
		p.giveBack(one)
	}
	wait, _ = p.retries.wait(p.cfg.BlockTimeout) // another consumer may have claimed the entry
	return p.driver.NextDelivery(ctx, max(wait, glance))
}
