package stream

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// entry is a stream entry that the subscription knows to be pending for its consumer.
type entry struct {
	id         string
	deliveries int64     // as counted by the group
	nacks      int       // in a row
	first      time.Time // when the entry was first delivered, as far as this consumer knows
	read       time.Time // when the entry was last delivered
	from       string    // the consumer of the last delivery
	beat       time.Time // time of the last heartbeat or delivery
	due        time.Time // when a waiting entry is delivered again, or a shunned one may be claimed
	waiting    bool
	shunned    bool

	deadReason string // reason, if the entry becomes a dead letter instead of being delivered
	deadTries  int    // attempts to move it to the dead-letter stream

	decoded   int64 // bytes of decoded data, while in flight
	deferred  int   // number of times in a row that the entry waited for SubscriberConfig.MaxDecodedBytes
	uncounted int64 // deliveries that ended in such a wait
}

// ledger manages the places for messages in flight, and the known entries. An entry is in flight, waits for redelivery, or
// is shunned: it stays pending until it may be claimed.
//
// The reader takes a place before it reads, and a redelivery takes one too. If both want the last place, they alternate, so
// that neither new nor failing messages starve the others.
type ledger struct {
	max int
	now func() time.Time

	mu         sync.Mutex
	taken      int // number of places
	entries    map[string]*entry
	queue      []*entry // waiting entries, ordered by due
	wanted     bool     // the reader waits for a place
	readerTurn bool
	closed     bool
	changed    signal // of the places and turns
	queued     signal // of the queue only, because its waiters need no wake-up for every place
}

// signal wakes all waiting goroutines. The caller must hold a lock.
type signal struct{ next chan struct{} }

func (s *signal) notify() {
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

func (s *signal) wait() <-chan struct{} {
	if s.next == nil {
		s.next = make(chan struct{})
	}
	return s.next
}

func newLedger(places int) *ledger {
	return &ledger{max: places, now: time.Now, entries: map[string]*entry{}}
}

// reserve takes up to want places for the reader. It waits for the first one, and returns 0 when ctx has ended.
func (l *ledger) reserve(ctx context.Context, want int) int {
	for ctx.Err() == nil {
		n, changed := l.tryReserve(want, true)
		if n > 0 {
			return n
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return 0
}

// tryReserve takes up to want places for the reader. If there is none and waits is set, it registers the reader as waiting
// and returns a channel that is closed when places change.
func (l *ledger) tryReserve(want int, waits bool) (n int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free, due := l.max-l.taken, l.countDue()
	if free <= 0 || due > 0 && !l.readerTurn {
		if l.wanted = waits; waits {
			changed = l.changed.wait()
		}
		return 0, changed
	}
	n = min(want, max(free-due, 1))
	l.taken += n
	l.wanted, l.readerTurn = false, false
	l.changed.notify()
	return n, nil
}

// release returns unused places.
func (l *ledger) release(n int) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken -= n
	l.changed.notify()
}

// inFlight returns the number of entries in flight.
func (l *ledger) inFlight() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if !e.waiting && !e.shunned {
			n++
		}
	}
	return n
}

func (l *ledger) countDue() int {
	now := l.now()
	n, _ := slices.BinarySearchFunc(l.queue, now, func(e *entry, now time.Time) int {
		if e.due.After(now) {
			return 1
		}
		return -1
	})
	return n
}

// takeDue takes a place for each waiting entry that is due, as far as there are places. If it takes none, it returns when
// to call it again: after wait, or when changed is closed. If wait is negative, only changed counts.
func (l *ledger) takeDue() (due []*entry, wait time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.countDue()
	if n == 0 {
		wait = -1
		if len(l.queue) > 0 {
			wait = max(l.queue[0].due.Sub(l.now()), 0)
		}
		return nil, wait, l.queued.wait()
	}
	n = min(n, l.max-l.taken)
	if n <= 0 || l.wanted && l.readerTurn {
		return nil, -1, l.changed.wait()
	}
	due = slices.Clone(l.queue[:n])
	l.queue = slices.Delete(l.queue, 0, n)
	for _, e := range due {
		e.waiting = false
	}
	l.taken += n
	l.readerTurn = true
	l.changed.notify()
	return due, 0, nil
}

// untilDue returns the time until the next redelivery, at most limit.
func (l *ledger) untilDue(limit time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return limit
	}
	return min(limit, l.queue[0].due.Sub(l.now()))
}

// hold records that an entry is in flight. The caller has taken a place for it. It returns false if the entry is already in
// flight or waiting.
func (l *ledger) hold(id string) (*entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[id]; ok && !e.shunned {
		return e, false
	}
	now := l.now()
	e := &entry{id: id, first: now, read: now, beat: now}
	l.entries[id] = e
	return e, true
}

// delivered records that an entry in flight was delivered to this consumer now.
func (l *ledger) delivered(e *entry, consumer string, deliveries int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	e.deliveries = deliveries
	e.from, e.read, e.beat = consumer, now, now
}

// toBeat returns the entries in flight without a heartbeat for d, and records a heartbeat for them.
func (l *ledger) toBeat(d time.Duration) (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for id, e := range l.entries {
		if !e.waiting && !e.shunned && now.Sub(e.beat) >= d {
			e.beat = now
			ids = append(ids, id)
		}
	}
	return ids
}

// unbeaten undoes toBeat after a heartbeat has failed.
func (l *ledger) unbeaten(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if e, ok := l.entries[id]; ok {
			e.beat = time.Time{}
		}
	}
}

// forget drops an entry in flight and releases its place. It reports whether that was the last place of a closed ledger.
func (l *ledger) forget(e *entry) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, e.id)
	return l.free()
}

// postpone makes an entry in flight wait for redelivery and releases its place. If the ledger is closed, postpone drops the
// entry and sets over.
func (l *ledger) postpone(e *entry, delay time.Duration) (last, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.due = l.now().Add(delay)
	if l.closed {
		delete(l.entries, e.id)
		return l.free(), true
	}
	e.waiting = true
	at, _ := slices.BinarySearchFunc(l.queue, e.due, func(e *entry, due time.Time) int {
		if e.due.After(due) {
			return 1
		}
		return -1
	})
	l.queue = slices.Insert(l.queue, at, e)
	l.queued.notify()
	return l.free(), false
}

// shun releases the place of an entry in flight, and excludes the entry from claims for d.
func (l *ledger) shun(e *entry, d time.Duration) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.shunned, e.due = true, l.now().Add(d)
	return l.free()
}

func (l *ledger) free() (last bool) {
	l.taken--
	l.changed.notify()
	return l.closed && l.taken == 0
}

// known returns the entries that are in flight, waiting or shunned. It drops shunned entries whose time is over.
func (l *ledger) known() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	maps.DeleteFunc(l.entries, func(_ string, e *entry) bool { return e.shunned && !e.due.After(now) })
	ids := make(map[string]bool, len(l.entries))
	for id := range l.entries {
		ids[id] = true
	}
	return ids
}

// close ends redelivery and returns the waiting entries. Entries in flight stay. It reports whether there are none.
func (l *ledger) close() (waiting []*entry, empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	waiting, l.queue = l.queue, nil
	for _, e := range waiting {
		delete(l.entries, e.id)
	}
	return waiting, l.taken == 0
}
