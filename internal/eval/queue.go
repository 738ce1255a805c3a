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
	// maxFlights is the most round trips to one node at a time: more would be too small to share anything.
	maxFlights = 4
	// minFlights is how many there may be in any case: while the server works on one, the client prepares the other.
	minFlights = 2
	// shortTrip is how long a round trip may last for each of them. On a short way few keep the server busy, and those who
	// wait for them share a script, which costs the server half. On a long way few would leave the server idle.
	shortTrip = 250 * time.Microsecond
	// maxBatch is the most calls of one flight. A script of so many holds the server up for half a
	// millisecond; beyond, nothing is gained.
	maxBatch = 64
	// maxBatchSize is the most bytes of a flight, counted as seal does: they hold the server up for a
	// millisecond. A larger call flies alone.
	maxBatchSize = 1 << 20
)

// queue lets callers that send calls at the same time share round trips. As long as fewer than the limit are under way to a
// node, a caller makes its own, at once, in its own goroutine. While they are, callers wait, and the
// flight that returns first takes along what has gathered. Nobody ever waits for company.
//
// A flight is one round trip. What the server turned away, or did not answer, goes back to its caller, who tries
// again: a slot that migrates or a call that cannot be carried out holds nobody else up.
type queue struct {
	runner *Runner

	timers sync.Pool // of those who wait

	mu    sync.Mutex
	nodes map[string]*nodeQueue // by the node's address
}

type nodeQueue struct {
	flights int
	trip    time.Duration // how long a round trip lasts, the last ones above all
	waiting []*Call
}

// limit is how many round trips may be under way.
func (l *nodeQueue) limit() int { return max(minFlights, min(maxFlights, int(l.trip/shortTrip))) }

// took learns from a round trip.
func (l *nodeQueue) took(trip time.Duration) { l.trip += (trip - l.trip) / 8 }

// round makes a round trip for each call, or fewer, since they are shared with others.
func (q *queue) round(ctx context.Context, calls []*Call) {
	if len(calls) == 1 {
		if l := q.nodeQueue(q.node(ctx, calls[0].Key)); q.enter(l) {
			defer q.leave(l, time.Now())
			q.runner.direct(ctx, calls)
			return
		}
	}
	for _, c := range calls {
		c.seal()
		c.wait(ctx, q.nodeQueue(q.node(ctx, c.Key)))
	}
	q.push(calls)
	for _, c := range calls {
		q.await(ctx, c)
	}
}

// node names the node of a key. If the cluster is not known yet, the name is empty, and the round trip finds the node.
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

// maxNodes is the number of node queues beyond which unused ones are dropped: a cluster's addresses come and go.
const maxNodes = 1000

func (q *queue) nodeQueue(node string) *nodeQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.nodes[node]
	if l == nil {
		if len(q.nodes) >= maxNodes {
			clear(q.nodes) // those in use live on until they are empty
		}
		l = &nodeQueue{trip: maxFlights * shortTrip}
		q.nodes[node] = l
	}
	return l
}

// enter takes a free flight.
func (q *queue) enter(l *nodeQueue) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.flights >= l.limit() {
		return false
	}
	l.flights++
	return true
}

// leave gives the flight, which began at a time, to those who wait.
func (q *queue) leave(l *nodeQueue, began time.Time) {
	if batch := q.next(l, time.Since(began)); len(batch) > 0 {
		go q.fly(l, batch)
		runtime.Gosched() // they leave before this caller goes on with his work
	}
}

// push lets requests wait, and takes the flights that are free.
func (q *queue) push(calls []*Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range calls {
		l := c.queue
		l.waiting = append(l.waiting, c)
	}
	for _, c := range calls {
		for l := c.queue; l.flights < l.limit() && len(l.waiting) > 0; {
			l.flights++
			go q.fly(l, l.nextFlight())
		}
	}
}

// fly makes one flight after the other, as long as somebody waits.
func (q *queue) fly(l *nodeQueue, batch []*Call) {
	for len(batch) > 0 {
		began := time.Now()
		q.runner.fly(batch)
		trip := time.Since(began)
		runtime.Gosched() // those who were answered may come back, and share the next one
		batch = q.next(l, trip)
	}
}

// next takes the next batch after a trip, or gives the flight up where nobody waits, or too many are under way.
func (q *queue) next(l *nodeQueue, trip time.Duration) []*Call {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.took(trip)
	if l.flights > l.limit() {
		l.flights--
		return nil
	}
	batch := l.nextFlight()
	if len(batch) == 0 {
		l.flights--
	}
	return batch
}

// nextFlight removes from the front the calls that fly together.
func (l *nodeQueue) nextFlight() []*Call {
	n, size := 0, 0
	for n < min(len(l.waiting), maxBatch) {
		c := l.waiting[n]
		size += c.size
		if first := l.waiting[0]; n > 0 && (c.Alone || first.Alone || c.Wait != first.Wait || size > maxBatchSize) {
			break
		}
		n++
	}
	batch := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return batch
}

// await waits for the answer, as long as the caller does.
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
	case <-c.done:
		c.settle()
	default:
		c.Failure, c.Unanswered = over, true // the flight goes on, for the others
	}
}

// wait returns nil when the request is answered, else why its caller waits no longer.
func (q *queue) wait(ctx context.Context, c *Call) error {
	var up <-chan time.Time
	if !c.Until.IsZero() {
		timer := q.timer(time.Until(c.Until))
		defer func() {
			timer.Stop()
			q.timers.Put(timer)
		}()
		up = timer.C
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-up:
		return context.DeadlineExceeded
	}
}

// timer returns a timer that is in use nowhere else.
func (q *queue) timer(d time.Duration) *time.Timer {
	timer, known := q.timers.Get().(*time.Timer)
	if !known {
		return time.NewTimer(d)
	}
	timer.Reset(d)
	return timer
}

// withdraw takes a request back that has not been sent.
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

// fly makes one round trip for a batch, and tells everybody.
func (r *Runner) fly(batch []*Call) {
	ctx, cancel := together(batch)
	defer cancel()
	r.exchange(ctx, share(batch))
	for _, c := range batch {
		close(c.done)
	}
}

// together is the context of a flight: it lasts as long as its most patient caller, and no caller's end ends it.
// Its values are those of the first.
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
