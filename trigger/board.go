package trigger

import (
	"sync"
	"sync/atomic"
	"time"
)

// Health is the state of a trigger for a readiness probe.
type Health struct {
	// Function and Transport identify the trigger. Transport is redis.pubsub or redis.stream, or the value of Config.Mode for a
	// Driver.
	Function, Transport string
	// State is the state of the place that receives. If every place processes a delivery, it is the state of the place that
	// changed last.
	State State
	// Since is the time of the change to State.
	Since time.Time
	// Ready reports that the trigger is connected and makes progress: it is not Stalled.
	Ready bool
	// Stalled reports that deliveries are worked on, or failed, and that none succeeded for Config.ProgressTimeout.
	Stalled bool
	// LastError is the latest error of any kind, and LastErrorAt its time. LastError is nil if there was none. A success does not
	// clear it.
	LastError   error
	LastErrorAt time.Time
}

// Stats has the counts of a trigger.
type Stats struct {
	// InFlight is the number of deliveries that functions process now, or whose ack has not been written yet.
	InFlight int64
	// Retrying is the number of failed entries that wait until they are due again. With Config.Ordered such an entry is
	// in flight instead.
	Retrying int64
	// OldestUnacked is the age of the oldest delivery that is in flight or waits for a retry. The age of an entry counts from the
	// time in its id, and that of a message from its receipt. It is 0 if there is none.
	OldestUnacked time.Duration
	// Owed is the number of successful entries whose ack has failed so far.
	Owed int64
	// Delivered is the number of deliveries.
	Delivered int64
	// Failed is the number of failed deliveries: the function returned an error or panicked, or no payload could be built.
	Failed int64
	// Acked is the number of entries that the trigger or a commit acknowledged. Dead letters do not count.
	Acked int64
	// AckFailed is the number of failed attempts to write an ack or a dead letter.
	AckFailed int64
	// DeadLettered is the number of entries that were moved to the dead letters.
	DeadLettered int64
	// Dropped is the number of failed deliveries that the source does not deliver again.
	Dropped int64
	// Reconnects is the number of times that the driver reconnected.
	Reconnects int64
	// Gaps are the times in which a pub/sub trigger was not subscribed.
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

// board holds the visible state of a trigger.
type board struct {
	mu     sync.Mutex
	health Health
	turn   bool                                      // a place has the turn, and the shown state is its state
	watch  func(from State, on stateEvent, to State) // for tests; may be nil
}

// show records a transition of a place, which may have the turn.
func (b *board) show(from State, on stateEvent, to State, turn bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watch != nil {
		b.watch(from, on, to)
	}
	if !to.Final() || from == Initializing { // the last of several places to stop ends the trigger
		b.state(to, turn)
	}
}

// ended records that the trigger has stopped.
func (b *board) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state(Stopped, true)
	b.health.Ready = false
}

// taken records that a place in this state has taken the turn.
func (b *board) taken(s State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn = true
	b.state(s, true)
}

// given records that a place has passed the turn on.
func (b *board) given() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn = false
}

// connected records whether the driver is connected.
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

// state returns the shown state. The caller holds the lock.
func (b *board) state(s State, turn bool) {
	if b.turn && !turn || b.health.State == s {
		return
	}
	b.health.State, b.health.Since = s, time.Now()
}
