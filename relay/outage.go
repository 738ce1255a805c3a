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
	// heldEach spreads the events of a destination that is unavailable: a long backlog must not be claimed and given
	// back over and over.
	heldEach = time.Millisecond
	// heldCap bounds the spread, and so how long after an outage the last of them is due.
	heldCap = time.Minute
	// manyOutages is when scopes that nobody has asked for during idleOutage are forgotten.
	manyOutages = 1000
	idleOutage  = time.Hour
)

// outages are the scopes of a Publisher that something is on its way to, or that are unavailable. They log one line
// at the beginning of each outage, and one at its end.
type outages struct {
	log  *slog.Logger
	tell func(context.Context, Outage)
	cap  time.Duration
	most int // batches on their way to one scope

	mu    sync.Mutex
	down  map[string]*outage
	stuck int // abandoned calls that still run
}

type outage struct {
	flying  int // batches on their way
	held    int // events given back unsent
	tries   int // 0: there is no outage
	until   time.Time
	probing bool // a batch is on its way to see whether it is over
	stuck   int  // abandoned calls that still run
}

// entry says what may happen to a group of events.
type entry struct {
	open  bool
	probe bool          // it shows whether the outage is over
	wait  time.Duration // where it is not open
}

// enter asks whether n events may be sent. After a pause one batch may, and the others wait for what it finds. Beside an
// outage it is what has enough on its way already that has to wait.
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

// note looks at the answers to a group that was let in, and returns how long its events are to wait that were answered
// Unavailable.
func (o *outages) note(ctx context.Context, scope string, in entry, errs []error) time.Duration {
	asked, there, down := verdict(errs)
	pause, tries, at := o.judge(scope, in, asked, there, down)
	if at.IsZero() {
		return pause
	}
	log := o.log
	if scope != "" {
		log = log.With("destination", scope)
	}
	if down == nil {
		log.Info("relay: the publisher is available again", "tries", tries)
	} else {
		log.Error("relay: the publisher is unavailable; pausing", "error", down)
	}
	observe.Tell(ctx, o.log, o.tell, Outage{Destination: scope, At: at, Over: down == nil, Err: down})
	return pause
}

// judge is note without telling anybody: at is when an outage begins, or ends after so many tries; zero: neither.
func (o *outages) judge(scope string, in entry, asked time.Duration, there bool, down error) (pause time.Duration, tries int, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.of(scope)
	out.flying--
	out.held /= 2
	if in.probe {
		out.probing = false
	}
	tries = out.tries
	if down == nil {
		if tries > 0 && there {
			out.tries, at = 0, time.Now()
		}
		if out.tries == 0 && out.flying == 0 && out.stuck == 0 {
			delete(o.down, scope)
		}
		return 0, tries, at
	}
	now := time.Now()
	if tries == 0 {
		at = now
	}
	if in.probe || tries == 0 { // else it was under way when the outage began
		out.tries++
		ceiling := o.ceiling(out.tries)
		out.until = now.Add(ceiling/2 + rand.N(ceiling/2+1))
	}
	if end := now.Add(asked); end.After(out.until) {
		out.until = end
	}
	return max(time.Until(out.until), 0), tries, at
}

// verdict finds in the answers of a destination: for how long it wants to be left alone, whether it answered anything but
// that it is unavailable, and why it is.
func verdict(errs []error) (asked time.Duration, there bool, down error) {
	for _, err := range errs {
		switch {
		case errors.Is(err, ErrLater), errors.Is(err, errTimeout): // the destination has not answered
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

// of finds a scope, a new one where it is not known; called with the lock held.
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

// left is how long nothing at all can be sent.
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
