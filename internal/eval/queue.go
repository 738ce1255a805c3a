package eval

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxFlights is the maximum number of concurrent round trips to one node. More round trips would be too small to
	// share anything.
	maxFlights = 4
	// minFlights is the minimum limit of concurrent round trips. While the server processes one, the client prepares the next.
	minFlights = 2
	// shortTrip is the duration of a round trip that allows one more flight. On a fast connection, a few flights keep
	// the server busy, and waiting calls share a script, which halves the CPU time. On a slow connection, a few flights
	// would leave the server idle.
	shortTrip = 250 * time.Microsecond
	// maxBatch is the maximum number of calls in one flight. A script with that many calls blocks the server for half a
	// millisecond. More calls save no CPU time.
	maxBatch = 64
	// maxBatchSize is the maximum size of a flight in bytes, counted as in seal. Such a flight blocks the server for a
	// millisecond. A larger call flies alone.
	maxBatchSize = 1 << 20
)

// queue lets concurrent calls share round trips. If fewer flights than the limit are under way to a node, a caller
// makes its own flight at once, in its own goroutine. Otherwise the call waits, and the first flight that returns takes
// its share of the waiting calls along. A call never waits for other calls to share with.
//
// A flight is one round trip. A call that the server rejected or did not reply to returns to its caller, which retries it. A
// migrating slot or a failing call thus does not delay other callers.
type queue struct {
	runner *Runner

	waiters sync.Pool // those that no call uses

	mu     sync.Mutex
	nodes  map[string]*nodeQueue // by the node's address
	pushes uint64                // number of calls of push
}

type nodeQueue struct {
	flights int
	flying  int           // calls in these flights
	trip    time.Duration // moving average of the duration of round trips
	waiting []*Call
	bounds  bounds
}

// limit returns the maximum number of concurrent round trips.
func (l *nodeQueue) limit() int { return max(minFlights, min(maxFlights, int(l.trip/shortTrip))) }

// took updates the average with the duration of a round trip.
func (l *nodeQueue) took(trip time.Duration) { l.trip += (trip - l.trip) / 8 }

// round makes a round trip for each call, or fewer if calls share them.
func (q *queue) round(ctx context.Context, calls []*Call) {
	if len(calls) == 1 {
		if l := q.nodeQueue(q.node(ctx, calls[0].Key)); q.enter(l) {
			began := time.Now()
			defer q.leave(l, began)
			bounded, used := l.bounds.within(ctx, began, calls[0].Until)
			defer l.bounds.leave(used)
			q.runner.trip(bounded, calls)
			return
		}
	}
	for _, c := range calls {
		c.seal()
		c.wait(ctx, q.nodeQueue(q.node(ctx, c.Key)), q.waiter())
	}
	q.push(calls)
	for _, c := range calls {
		q.await(ctx, c)
	}
}

// node returns the address of the node of a key. If the cluster is not known yet, the address is empty, and the round trip finds
// the node.
func (q *queue) node(ctx context.Context, key string) string {
	master, err := q.runner.master(ctx, key)
	if err != nil {
		return ""
	}
	if node, ok := master.(*redis.Client); ok && master != q.runner.client {
		return node.Options().Addr
	}
	return ""
}

// maxNodes is the number of node queues beyond which the queues are dropped. A cluster's addresses change over time.
const maxNodes = 1000

func (q *queue) nodeQueue(node string) *nodeQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.nodes[node]
	if l == nil {
		if len(q.nodes) >= maxNodes {
			clear(q.nodes) // queues in use exist until they are empty
		}
		l = &nodeQueue{trip: maxFlights * shortTrip}
		q.nodes[node] = l
	}
	return l
}

// enter starts a flight if one is free, and reports whether it did.
func (q *queue) enter(l *nodeQueue) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.flights >= l.limit() {
		return false
	}
	l.flights++
	l.flying++
	return true
}

// leave passes the flight, which began at the given time, to the waiting calls.
func (q *queue) leave(l *nodeQueue, began time.Time) {
	if batch := q.next(l, 1, time.Since(began)); len(batch) > 0 {
		go q.fly(l, batch)
		runtime.Gosched() // lets their callers start before this caller continues
	}
}

// push adds calls to their queues and starts the free flights.
func (q *queue) push(calls []*Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pushes++
	for _, c := range calls {
		l := c.queue
		c.push = q.pushes
		l.waiting = append(l.waiting, c)
	}
	for _, c := range calls {
		q.start(c.queue)
	}
}

// start starts the free flights. The caller holds the lock.
func (q *queue) start(l *nodeQueue) {
	for l.flights < l.limit() && len(l.waiting) > 0 {
		l.flights++
		go q.fly(l, l.nextFlight())
	}
}

// fly makes one flight after the other while calls wait.
func (q *queue) fly(l *nodeQueue, batch []*Call) {
	for len(batch) > 0 {
		began := time.Now()
		q.runner.fly(batch)
		trip := time.Since(began)
		runtime.Gosched() // callers with replies may send again and share the next flight
		batch = q.next(l, len(batch), trip)
	}
}

// next returns the next batch after a trip of the given number of calls. It ends the flight if no call waits, or if there
// are too many flights.
func (q *queue) next(l *nodeQueue, calls int, trip time.Duration) []*Call {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.took(trip)
	l.flying -= calls
	if l.flights > l.limit() {
		l.flights--
		return nil
	}
	batch := l.nextFlight()
	if len(batch) == 0 {
		l.flights--
	}
	q.start(l)
	return batch
}

// nextFlight removes the calls of the next flight from the front of the queue. It takes an equal share of the calls that
// wait and fly, but does not separate calls that were pushed together. Without shares, one flight would take all calls
// while the others have one or two.
func (l *nodeQueue) nextFlight() []*Call {
	share := (len(l.waiting) + l.flying + l.limit() - 1) / l.limit()
	n, size := 0, 0
	for n < min(len(l.waiting), maxBatch) {
		c := l.waiting[n]
		size += c.size
		if first := l.waiting[0]; n > 0 && (c.Alone || first.Alone || c.Wait != first.Wait || size > maxBatchSize) {
			break
		}
		if n >= share && c.push != l.waiting[n-1].push {
			break
		}
		n++
	}
	l.flying += n
	batch := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return batch
}

// await waits for the reply as long as the caller does.
func (q *queue) await(ctx context.Context, c *Call) {
	over := q.wait(ctx, c)
	if over == nil {
		c.settle()
		return
	}
	if q.withdraw(c) {
		c.Failure = unsentError{over}
		return
	}
	select {
	case <-c.waiter.done:
		c.settle()
	default:
		c.Failure, c.Unanswered = over, true // the flight continues for the other calls
	}
}

// waiter is what the caller of a call waits with. Once the call has its reply, another call may use it.
type waiter struct {
	done  chan struct{} // receives a value when the call has its reply
	timer *time.Timer
}

// waiter returns a waiter that no call uses.
func (q *queue) waiter() *waiter {
	if w, known := q.waiters.Get().(*waiter); known {
		return w
	}
	w := &waiter{make(chan struct{}, 1), time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// wait returns nil when the call has its reply. If the caller no longer waits, it returns the reason.
func (q *queue) wait(ctx context.Context, c *Call) error {
	w := c.waiter
	if !c.Until.IsZero() {
		w.timer.Reset(time.Until(c.Until))
	}
	select {
	case <-w.done:
		w.timer.Stop()
		q.waiters.Put(w)
		return nil
	case <-ctx.Done():
		w.timer.Stop()
		return context.Cause(ctx)
	case <-w.timer.C:
		return context.DeadlineExceeded
	}
}

// withdraw removes a call that has not been sent. It returns false if the call was sent.
func (q *queue) withdraw(c *Call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := c.queue
	i := slices.Index(l.waiting, c)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// fly makes one round trip for a batch and wakes its callers.
func (r *Runner) fly(batch []*Call) {
	ctx, cancel := together(batch)
	defer cancel()
	r.exchange(ctx, share(batch))
	for _, c := range batch {
		c.waiter.done <- struct{}{}
	}
}

// together returns the context of a flight. The context lasts as long as the most patient caller waits, and does not
// end when another caller leaves. It has the values of the first caller.
func together(batch []*Call) (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(batch[0].ctx)
	var last time.Time
	for _, c := range batch {
		deadline, ok := ends(c.ctx, c.Until)
		if !ok {
			return ctx, func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(ctx, last)
}
