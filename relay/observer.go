package relay

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/luatx/luatx/internal/observe"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
)

// Observer is told what a Relay does, for metrics and traces. A function that is nil is not called, and costs nothing.
//
// The functions run in the relay's goroutines, outside of locks: a slow one holds up its batch, whose lease runs on. They
// are called by several goroutines at once. A panic ends in the log.
type Observer struct {
	// Published is told when the Publisher has answered, before the shard is told.
	Published func(context.Context, Published)
	// Settled is told when a shard has taken over what became of its events.
	Settled func(context.Context, Settled)
	// Outage is told when a destination becomes unavailable, and when it is available again.
	Outage func(context.Context, Outage)
	// Stuck is called when the relay abandons a call of the Publisher that does not return, and when such a call returns.
	Stuck func(context.Context, Stuck)
}

// And returns an Observer that tells o and then other.
func (o Observer) And(other Observer) Observer {
	return Observer{
		Published: observe.Both(o.Published, other.Published),
		Settled:   observe.Both(o.Settled, other.Settled),
		Outage:    observe.Both(o.Outage, other.Outage),
		Stuck:     observe.Both(o.Stuck, other.Stuck),
	}
}

// Published is one call of the Publisher.
type Published struct {
	// Destination is the scope of its events; empty where the Publisher is not Scoped.
	Destination string
	// Events is how many it was given, and Failed to how many of them it answered with an error of whatever kind.
	Events, Failed int
	// Began is when it was called, and Duration for how long it worked.
	Began    time.Time
	Duration time.Duration
	// Err is the first error; nil where there is none.
	Err error
}

// Settled describes the settlements that a shard recorded.
type Settled struct {
	Slot int
	// Sent were published. Failed are tried again after a pause, and Returned without having been tried.
	Sent, Failed, Returned int
	// Parked stay until an operator acts.
	Parked []Parked
	// Lost were another's by then, or gone.
	Lost int
}

// Parked is an event that needs an operator.
type Parked struct {
	// ID is empty where the relay that held the event died or hung at its last attempt.
	ID string
	// Class and Error say why, as outbox.Event does.
	Class, Error string
}

// Outage is the beginning or the end of a destination's being unavailable.
type Outage struct {
	// Destination is the scope; empty stands for all that the Publisher sends to.
	Destination string
	// At is when: calls may overtake one another.
	At time.Time
	// Over says that it is available again.
	Over bool
	// Err is what the Publisher answered; nil where it is over.
	Err error
}

// Stuck is a call of the Publisher that the relay abandoned because it outlived its context, or the late return of one.
type Stuck struct {
	// Destination is the scope of its events; empty where the Publisher is not Scoped.
	Destination string
	// Events is how many events the call was given. Inside of a Publisher such as Func or Route, which calls another for
	// some of its events, these are counted.
	Events int
	// Began is when the relay called the Publisher, and Duration how long ago that is.
	Began    time.Time
	Duration time.Duration
	// Returned reports that the call has returned. Each abandoned call is reported once, and its return at most once.
	Returned bool
}

// published reports a call of the Publisher.
func (o *Observer) published(ctx context.Context, log *slog.Logger, scope string, began time.Time, errs []error) {
	if o.Published == nil {
		return
	}
	p := Published{Destination: scope, Events: len(errs), Began: began, Duration: time.Since(began)}
	for _, err := range errs {
		if err != nil {
			p.Failed++
			if p.Err == nil {
				p.Err = err
			}
		}
	}
	observe.Tell(ctx, log, o.Published, p)
}

// settled tells what became of a batch, by what its shard has answered.
func (o *Observer) settled(ctx context.Context, log *slog.Logger, slot int, batch []shard.Settlement, done []string) {
	if o.Settled == nil {
		return
	}
	s := Settled{Slot: slot}
	for i, what := range done {
		switch what {
		case settle.Sent:
			s.Sent++
		case settle.Retry:
			s.Failed++
		case settle.GiveBack:
			s.Returned++
		case settle.Park:
			s.Parked = append(s.Parked, Parked{batch[i].ID, cmp.Or(batch[i].Class, "exhausted"), batch[i].Error})
		default:
			s.Lost++
		}
	}
	observe.Tell(ctx, log, o.Settled, s)
}

// crashed reports events that were parked because their last relay never settled them.
func (o *Observer) crashed(ctx context.Context, log *slog.Logger, slot, parked int) {
	if o.Settled == nil {
		return
	}
	s := Settled{Slot: slot, Parked: make([]Parked, parked)}
	for i := range s.Parked {
		s.Parked[i].Class = "crashed"
	}
	observe.Tell(ctx, log, o.Settled, s)
}
