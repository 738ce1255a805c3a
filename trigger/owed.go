package trigger

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// maxOwed is the number of unwritten acks at which the trigger stops receiving.
const maxOwed = 1000

var errOwed = errors.New("trigger: receive: too many acks could not be written")

// owed holds finished deliveries whose ack or dead letter could not be written. They stay in flight, so that no other consumer
// gets them. The trigger writes them before it receives anything.
type owed struct {
	paying sync.Mutex // held while an ack is written

	mu   sync.Mutex
	list []*work // oldest first

	due   time.Time // time of the next attempt; belongs to the place that has the turn
	fails int       // consecutive failures; belongs to the place that has the turn
}

// find returns the finished work of the same entry.
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

// add adds work unless it is in the list, and reports whether it did.
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

// owe records that an ack has failed. Once the work is in the list, other places may write its ack.
func (r *running) owe(w *work, err error) {
	r.counts.ackFailed.Add(1)
	w.attempts++
	r.board.failed(err)
	what := "ack"
	if w.refused != "" {
		what = "dead letter"
	}
	r.log.Error("trigger: ack failed",
		"what", what, "stream", w.d.Stream, "group", w.d.Group, "entry", w.d.ID, "attempts", w.attempts, "error", err)
	if r.owed.add(w) {
		r.counts.owed.Add(1)
	}
}

// pay writes an owed ack, unless another place has done so.
func (r *running) pay(w *work) bool {
	r.owed.paying.Lock()
	defer r.owed.paying.Unlock()
	return r.paying(w)
}

// paying is pay for a caller that holds the lock.
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
	r.log.Info("trigger: owed ack written", w.d.subject()...)
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

// payDue writes owed acks, oldest first, if the next attempt is due. It returns an error if too many acks are owed.
func (r *running) payDue() error {
	o := &r.owed
	list := o.all()
	if len(list) == 0 {
		return nil
	}
	if !time.Now().Before(o.due) {
		if !slices.ContainsFunc(list, func(w *work) bool { return !r.pay(w) }) { // the first failure ends the loop
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

// payAll tries to write each owed ack for the last time.
func (r *running) payAll() {
	for _, w := range r.owed.all() {
		if r.pay(w) {
			continue
		}
		for _, left := range r.owed.all() {
			r.letGo(left, false)
			r.log.Warn("trigger: owed ack abandoned", left.d.subject()...)
		}
		return
	}
}
