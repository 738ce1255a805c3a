package trigger

import (
	"sync"
	"sync/atomic"
	"time"
)

// Health is what a readiness probe wants to know.
type Health struct {
	// Function and Transport say what runs on what: redis.pubsub, redis.stream, or what Config.Mode says of a Driver.
	Function, Transport string
	// State is that of the place that receives; while all places work on something, of the one that changed last.
	State State
	// Since is when it became so.
	Since time.Time
	// Ready reports that the trigger is connected and makes progress: it is not Stalled.
	Ready bool
	// Stalled reports that deliveries are worked on, or failed, and that none succeeded for Config.ProgressTimeout.
	Stalled bool
	// LastError is the latest error, of whatever kind, and LastErrorAt when it was; nil: there was none. It is not
	// cleared by a success.
	LastError   error
	LastErrorAt time.Time
}

// Stats counts what a trigger has done.
type Stats struct {
	// InFlight is the number of deliveries that functions work on now, or whose ack is owed.
	InFlight int64
	// Retrying is the number of failed entries that wait until they are due again. With Config.Ordered such an entry is
	// in flight instead.
	Retrying int64
	// OldestUnacked is the age of the oldest delivery that is in flight or waits to be tried again, counted from when the
	// entry was added, as its id says, or the message was received. It is 0 if there is none.
	OldestUnacked time.Duration
	// Owed is how many entries are done whose ack has failed so far.
	Owed int64
	// Delivered is how many deliveries there were.
	Delivered int64
	// Failed is how many of them were not done: the function returned an error or panicked, or no payload could be built.
	Failed int64
	// Acked is how many entries were acked, by the trigger or by a commit. Dead letters do not count.
	Acked int64
	// AckFailed is how often an ack or a dead letter could not be written.
	AckFailed int64
	// DeadLettered is how many entries went to the dead letters.
	DeadLettered int64
	// Dropped is how many deliveries were given up, because they come once.
	Dropped int64
	// Reconnects is how often the driver connected anew.
	Reconnects int64
	// Gaps are the times in which a pub/sub trigger heard nothing.
	Gaps Gaps
}

type counts struct {
	inFlight, retrying, owed, delivered, failed, acked, ackFailed, deadLettered, dropped, reconnects atomic.Int64
}

func (c *counts) stats() Stats {
	return Stats{
		InFlight: c.inFlight.Load(), Retrying: c.retrying.Load(), Owed: c.owed.Load(), Delivered: c.delivered.Load(), Failed: c.failed.Load(),
		Acked: c.acked.Load(), AckFailed: c.ackFailed.Load(), DeadLettered: c.deadLettered.Load(),
		Dropped: c.dropped.Load(), Reconnects: c.reconnects.Load(),
	}
}

// board shows where a trigger stands.
type board struct {
	mu     sync.Mutex
	health Health
	turn   bool                                      // a place has the turn, and the state shown is its
	watch  func(from State, on stateEvent, to State) // for tests; may be nil
}

// show notes the transition of a place, which has the turn or not.
func (b *board) show(from State, on stateEvent, to State, turn bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watch != nil {
		b.watch(from, on, to)
	}
	if !to.Final() || from == Initializing { // of several places the last one to stop ends the trigger
		b.state(to, turn)
	}
}

// ended notes that the trigger has stopped.
func (b *board) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state(Stopped, true)
	b.health.Ready = false
}

// taken notes that a place in the state has taken the turn.
func (b *board) taken(s State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn = true
	b.state(s, true)
}

// given notes that a place has given the turn away.
func (b *board) given() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn = false
}

// connected notes whether the driver is.
func (b *board) connected(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.health.Ready = yes
}

func (b *board) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.health.LastError, b.health.LastErrorAt = err, time.Now()
}

func (b *board) report() Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.health
}

// state must be called with the lock held.
func (b *board) state(s State, turn bool) {
	if b.turn && !turn || b.health.State == s {
		return
	}
	b.health.State, b.health.Since = s, time.Now()
}
