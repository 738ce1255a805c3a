package relay

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

var errTurn = errors.New("relay: the event waits for its turn: its destination is limited")

const (
	// manyTenants is the number of tenants from which on the limiter forgets those without waiting events.
	manyTenants = 1000
	// furthest is the longest time for which an event is given back. The estimate may be wrong by then.
	furthest = time.Minute
	// smoothing is the weight of the last call in the expected duration of a call.
	smoothing = 0.1
)

// limiter decides which events of one scope are published next. Tenants with waiting events take turns in a ring (deficit
// round robin, where each event costs 1).
type limiter struct {
	cfg   LimitConfig
	users int // guarded by limited.mu

	mu      sync.Mutex
	bucket  bucket
	flying  int // calls that run
	waiting int // tickets in queues
	tenants map[string]*tenant
	ring    []*tenant // tenants with a queue
	turn    int       // index of the tenant whose turn it is
	took    float64   // smoothed duration per event of a call, in seconds
	armed   bool      // a timer waits for a token
}

type tenant struct {
	weight  int
	credit  int // events that the tenant may still publish in this turn
	queue   []*ticket
	horizon time.Time // when the last event that was given back is due
}

func newLimiter(cfg LimitConfig) *limiter {
	return &limiter{cfg: cfg, bucket: newBucket(cfg.Rate, float64(cfg.Burst)), tenants: make(map[string]*tenant)}
}

// join queues tickets. It gives back the events of those that would wait too long.
func (l *limiter) join(tickets []*ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, t := range tickets {
		t.call.waiting.Add(1)
		whose := l.tenant(t, now)
		if t.call.ctx.Err() != nil { // cancel may have run already, and then would not find this ticket
			t.finish(Later(errNoTime, 0))
			continue
		}
		if wait := l.estimate(whose); l.waiting >= l.room(now) && len(whose.queue) > 0 && wait > l.cfg.Wait {
			t.finish(Later(errTurn, l.postpone(whose, now.Add(wait), now)))
			continue
		}
		l.queue(whose, t)
	}
	l.pump()
}

// tenant returns the tenant of a ticket, which it adds if necessary.
func (l *limiter) tenant(t *ticket, now time.Time) *tenant {
	whose := l.tenants[t.tenant]
	if whose == nil {
		if len(l.tenants) >= manyTenants {
			maps.DeleteFunc(l.tenants, func(_ string, other *tenant) bool { return len(other.queue) == 0 && other.horizon.Before(now) })
		}
		whose = new(tenant)
		l.tenants[t.tenant] = whose
	}
	whose.weight = max(1, t.weight)
	return whose
}

func (l *limiter) queue(whose *tenant, t *ticket) {
	if len(whose.queue) == 0 {
		l.ring = append(l.ring, whose)
		if len(l.ring) == 1 {
			l.begin(l.turn)
		}
	}
	whose.queue = append(whose.queue, t)
	l.waiting++
}

// room returns the number of tickets that could be published at once.
func (l *limiter) room(now time.Time) int {
	room := math.MaxInt
	if l.cfg.Rate > 0 {
		room = l.bucket.has(now)
	}
	if l.cfg.Concurrency > 0 {
		room = min(room, (l.cfg.Concurrency-l.flying)*l.cfg.Batch)
	}
	return room
}

// pace returns the time between two events at the full rate.
func (l *limiter) pace() time.Duration {
	var pace float64
	if l.cfg.Rate > 0 {
		pace = 1 / l.cfg.Rate
	}
	if l.cfg.Concurrency > 0 {
		pace = max(pace, l.took/float64(l.cfg.Concurrency))
	}
	return time.Duration(pace * float64(time.Second))
}

// estimate returns how long another ticket of a tenant would wait.
func (l *limiter) estimate(whose *tenant) time.Duration {
	weights := 0
	for _, other := range l.ring {
		weights += other.weight
	}
	if len(whose.queue) == 0 {
		weights += whose.weight
	}
	return l.pace() * time.Duration((len(whose.queue)+1)*weights/whose.weight)
}

// postpone returns for how long to give an event back, so that the events of a tenant become due one after another.
func (l *limiter) postpone(whose *tenant, earliest, now time.Time) time.Duration {
	if whose.horizon.Before(earliest) {
		whose.horizon = earliest
	}
	whose.horizon = whose.horizon.Add(l.pace())
	if wait := whose.horizon.Sub(now); wait < furthest {
		return wait
	}
	whose.horizon = now.Add(furthest)
	return furthest/2 + rand.N(furthest/2)
}

// next returns the tenant whose turn it is, or nil if no ticket waits.
func (l *limiter) next() *tenant {
	if len(l.ring) == 0 {
		return nil
	}
	return l.ring[l.turn]
}

// pop removes the first ticket of the tenant whose turn it is.
func (l *limiter) pop() *ticket {
	whose := l.ring[l.turn]
	t := whose.queue[0]
	whose.queue = whose.queue[1:]
	whose.credit--
	l.waiting--
	switch {
	case len(whose.queue) == 0:
		l.ring = slices.Delete(l.ring, l.turn, l.turn+1)
		l.begin(l.turn)
	case whose.credit <= 0:
		l.begin(l.turn + 1)
	}
	return t
}

// begin starts the turn of the tenant at an index of the ring.
func (l *limiter) begin(place int) {
	if len(l.ring) == 0 {
		return
	}
	l.turn = place % len(l.ring)
	l.ring[l.turn].credit = l.ring[l.turn].weight
}

// pump starts calls until the limits are reached or no ticket is left.
func (l *limiter) pump() {
	for l.cfg.Concurrency == 0 || l.flying < l.cfg.Concurrency {
		batch := l.batch()
		if len(batch) == 0 {
			return
		}
		l.flying++
		go l.fly(batch)
	}
}

// batch removes the tickets for one call, in the order of the turns.
func (l *limiter) batch() (batch []*ticket) {
	now := time.Now()
	for len(batch) < l.cfg.Batch {
		whose := l.next()
		if whose == nil || len(batch) > 0 && whose.queue[0].call != batch[0].call {
			return batch
		}
		if !l.bucket.takeToken(now) {
			l.arm(l.bucket.wait(now))
			return batch
		}
		batch = append(batch, l.pop())
	}
	return batch
}

// arm calls pump again when there is a token.
func (l *limiter) arm(wait time.Duration) {
	if l.armed {
		return
	}
	l.armed = true
	time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.armed = false
		l.pump()
	})
}

// fly publishes a batch. If the destination is unavailable, fly finishes the waiting tickets with the same error.
func (l *limiter) fly(batch []*ticket) {
	begun := time.Now()
	n := len(batch)
	again, down := batch[0].call.publish(batch)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying--
	took := time.Since(begun).Seconds() / float64(n)
	if l.took == 0 {
		l.took = took
	}
	l.took += smoothing * (took - l.took)
	now := time.Now()
	for _, t := range again {
		if t.call.ctx.Err() != nil {
			t.finish(Later(errNoTime, 0))
			continue
		}
		l.queue(l.tenant(t, now), t)
	}
	if down != nil {
		l.drop(nil, func(*tenant) error { return down })
	}
	l.pump()
}

// cancel gives back the waiting events of a call whose context has ended.
func (l *limiter) cancel(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.drop(c, func(whose *tenant) error {
		return Later(errTurn, l.postpone(whose, now.Add(l.estimate(whose)), now))
	})
}

// drop finishes the waiting tickets of a call, or of all calls if c is nil.
func (l *limiter) drop(c *call, answer func(*tenant) error) {
	ring := l.ring
	l.ring = nil
	for _, whose := range ring {
		whose.queue = slices.DeleteFunc(whose.queue, func(t *ticket) bool {
			if c != nil && t.call != c {
				return false
			}
			t.finish(answer(whose))
			l.waiting--
			return true
		})
		if len(whose.queue) > 0 {
			l.ring = append(l.ring, whose)
		}
	}
	l.begin(l.turn)
}

// idle reports whether the limiter has no state left.
func (l *limiter) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting == 0 && l.flying == 0 && !l.armed && l.bucket.full(time.Now())
}
