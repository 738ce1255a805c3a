package trigger

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// maxOwed is how many acks may be owed before nothing more is received.
const maxOwed = 1000

var errOwed = errors.New("trigger: too many acks are owed to receive more")

// owed are deliveries that are done, but whose acknowledgement failed. They stay in flight, so that no consumer gets
// them, and are acknowledged before anything else is received.
type owed struct {
	paying sync.Mutex // held while one is acknowledged

	mu   sync.Mutex
	list []*work // oldest first

	due   time.Time // the next attempt; belongs to the holder of the turn
	fails int       // in a row; belongs to the holder of the turn
}

// find returns the work that has done an entry before.
func (o *owed) find(d *Delivery) *work {
	key := d.key()
	if key == "" {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.IndexFunc(o.list, func(w *work) bool { return w.d.key() == key }); i >= 0 {
		return o.list[i]
	}
	return nil
}

func (o *owed) has(w *work) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.list, w)
}

func (o *owed) remove(w *work) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = slices.DeleteFunc(o.list, func(other *work) bool { return other == w })
}

// add reports whether it was not owed before.
func (o *owed) add(w *work) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.list, w) {
		return false
	}
	o.list = append(o.list, w)
	return true
}

func (o *owed) all() []*work {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.list)
}

// owe notes that an ack has failed. Once the work is in the list, other places may pay for it.
func (r *running) owe(w *work, err error) {
	r.counts.ackFailed.Add(1)
	w.attempts++
	r.board.failed(err)
	what := "ack"
	if w.refused != "" {
		what = "dead letter"
	}
	r.log.Error("trigger: entry is done, but the server could not be told; this is tried again before it can run again",
		"what", what, "stream", w.d.Stream, "group", w.d.Group, "entry", w.d.ID, "attempts", w.attempts, "error", err)
	if r.owed.add(w) {
		r.counts.owed.Add(1)
	}
}

// pay acknowledges an owed delivery, unless that was done meanwhile.
func (r *running) pay(w *work) bool {
	r.owed.paying.Lock()
	defer r.owed.paying.Unlock()
	return r.paying(w)
}

// paying must be called with the lock held.
func (r *running) paying(w *work) bool {
	if !r.owed.has(w) {
		return true
	}
	if err := r.settle(w); err != nil {
		r.owe(w, err)
		return false
	}
	r.owed.remove(w)
	r.counts.owed.Add(-1)
	r.log.Info("trigger: ack that had failed is written", w.d.subject()...)
	return true
}

// payAgain is pay for an entry that was delivered again meanwhile.
func (r *running) payAgain(w *work) bool {
	r.owed.paying.Lock()
	defer r.owed.paying.Unlock()
	if !r.owed.has(w.before) {
		w.d.done(true)
		return true
	}
	w.before.again = append(w.before.again, w.d)
	return r.paying(w.before)
}

// payDue acknowledges the owed deliveries that are due, oldest first. It returns an error if too many are owed to
// go on.
func (r *running) payDue() error {
	o := &r.owed
	list := o.all()
	if len(list) == 0 {
		return nil
	}
	if !time.Now().Before(o.due) {
		if !slices.ContainsFunc(list, func(w *work) bool { return !r.pay(w) }) { // the first that fails ends it
			o.fails = 0
			return nil
		}
		o.fails++
		o.due = time.Now().Add(r.cfg.Retry.Reconnect.Delay(o.fails))
	}
	if len(list) >= maxOwed {
		return errOwed
	}
	return nil
}

// payAll tries for the last time to acknowledge the owed deliveries.
func (r *running) payAll() {
	for _, w := range r.owed.all() {
		if r.pay(w) {
			continue
		}
		for _, left := range r.owed.all() {
			r.letGo(left, false)
			r.log.Warn("trigger: entry is done and not acked, it will run again", left.d.subject()...)
		}
		return
	}
}
