package relay

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/observe"
	"github.com/luatx/luatx/message"
)

const (
	// heldEach spreads the due times of events whose destination is unavailable. Otherwise, relays would claim a long backlog
	// and give it back over and over.
	heldEach = time.Millisecond
	// heldCap bounds the spread, and so how long after an outage the last event is due.
	heldCap = time.Minute
	// manyOutages is the number of scopes from which on those that are unused for idleOutage are forgotten.
	manyOutages = 1000
	idleOutage  = time.Hour
)

// outages holds the scopes of a Publisher that are unavailable or have batches in flight. It logs the beginning and the end
// of each outage once.
type outages struct {
	log    *slog.Logger
	notify func(context.Context, Outage)
	cap    time.Duration
	most   int // maximum number of batches in flight for one scope

	mu    sync.Mutex
	down  map[string]*outage
	stuck int           // abandoned calls that have not returned
	told  chan struct{} // closed when the latest change has been reported; nil if there was none
}

// change is the beginning or the end of an outage.
type change struct {
	at           time.Time
	tries        int // that an outage had when it ended
	before, told chan struct{}
}

type outage struct {
	flying  int // batches in flight
	held    int // events given back unsent
	tries   int // 0 if there is no outage
	until   time.Time
	probing bool // a batch in flight tests whether the outage is over
	stuck   int  // abandoned calls that have not returned
}

// entry is the decision about a group of events.
type entry struct {
	open  bool
	probe bool          // the group tests whether the outage is over
	wait  time.Duration // set if open is false
}

// enter decides whether n events may be published. During an outage it lets one batch through after each pause and holds
// back the others. Without an outage, events wait only if the scope has the maximum number of batches in flight.
func (o *outages) enter(scope string, n int) entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.of(scope)
	left := time.Until(out.until)
	switch {
	case o.clogged(out):
		left = max(left, o.cap)
	case out.tries == 0 && out.flying < o.most:
		out.flying++
		return entry{open: true}
	case out.tries > 0 && left <= 0 && !out.probing:
		out.flying++
		out.probing = true
		return entry{open: true, probe: true}
	}
	out.held += n
	return entry{wait: max(left, o.ceiling(out.tries)/2) + min(time.Duration(out.held)*heldEach, heldCap)}
}

// note records the results of a group that enter let through. It returns how long the events with an error made by
// Unavailable must wait.
func (o *outages) note(ctx context.Context, scope string, in entry, errs []error) time.Duration {
	asked, there, down := verdict(errs)
	pause, c := o.judge(scope, in, asked, there, down)
	if c == nil {
		return pause
	}
	if c.before != nil {
		<-c.before // the end of an outage is reported after its beginning
	}
	defer close(c.told)
	log := o.log
	if scope != "" {
		log = log.With("destination", scope)
	}
	if down == nil {
		log.Info("relay: publisher available", "tries", c.tries)
	} else {
		log.Error("relay: publisher unavailable", "error", down)
	}
	observe.Tell(ctx, o.log, o.notify, Outage{Destination: scope, At: c.at, Over: down == nil, Err: down})
	return pause
}

// judge is note without the notifications. The change is nil if no outage began or ended.
func (o *outages) judge(scope string, in entry, asked time.Duration, there bool, down error) (pause time.Duration, c *change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.of(scope)
	out.flying--
	out.held /= 2
	if in.probe {
		out.probing = false
	}
	now, tries := time.Now(), out.tries
	if down == nil {
		if tries > 0 && there {
			out.tries, c = 0, o.changed(now, tries)
		}
		if out.tries == 0 && out.flying == 0 && out.stuck == 0 {
			delete(o.down, scope)
		}
		return 0, c
	}
	if tries == 0 {
		c = o.changed(now, 0)
	}
	if in.probe || tries == 0 { // otherwise the batch was in flight already when the outage began
		out.tries++
		ceiling := o.ceiling(out.tries)
		out.until = now.Add(ceiling/2 + rand.N(ceiling/2+1))
	}
	if end := now.Add(asked); end.After(out.until) {
		out.until = end
	}
	return max(time.Until(out.until), 0), c
}

// changed returns a change that is reported after those before it.
func (o *outages) changed(at time.Time, tries int) *change {
	c := &change{at, tries, o.told, make(chan struct{})}
	o.told = c.told
	return c
}

// verdict returns the longest delay that a destination requested, whether it returned any result other than being
// unavailable, and the error if it is unavailable.
func verdict(errs []error) (asked time.Duration, there bool, down error) {
	for _, err := range errs {
		switch {
		case errors.Is(err, ErrLater), errors.Is(err, errTimeout): // no result of the destination
		case errors.Is(err, ErrUnavailable):
			down = err
			d, _ := message.RetryDelay(err)
			asked = max(asked, d)
		default:
			there = true
		}
	}
	return asked, there, down
}

// of returns the outage of a scope, which it adds if necessary. The caller must hold the lock.
func (o *outages) of(scope string) *outage {
	out := o.down[scope]
	if out != nil {
		return out
	}
	if o.down == nil {
		o.down = make(map[string]*outage)
	}
	if len(o.down) >= manyOutages {
		for name, old := range o.down {
			if old.flying == 0 && old.stuck == 0 && time.Since(old.until) > idleOutage {
				delete(o.down, name)
			}
		}
	}
	out = new(outage)
	o.down[scope] = out
	return out
}

func (o *outages) ceiling(tries int) time.Duration { return min(firstPause<<min(tries, 20), o.cap) }

// left returns how long no event can be published, whatever its destination.
func (o *outages) left() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.down[""]
	switch {
	case o.clogged(out):
		return o.cap
	case out == nil, out.tries == 0 && out.flying < o.most:
		return 0
	case out.tries == 0, out.probing:
		return max(time.Until(out.until), o.ceiling(0))
	}
	return time.Until(out.until)
}

func (o *outages) paused() bool { return o.left() > 0 }
