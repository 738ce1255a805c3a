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

// Observer receives notifications of a Relay's actions, for metrics and traces. The Relay does not call functions that are
// nil.
//
// The functions run in the relay's goroutines, several at once, and hold no lock. A slow function delays its batch while
// the lease runs. A panic is logged.
type Observer struct {
	// Published is called when a call of the Publisher has returned, before the results are stored in the shard.
	Published func(context.Context, Published)
	// Settled is called when a shard has stored the results of its events.
	Settled func(context.Context, Settled)
	// Outage is called when a destination becomes unavailable, and then when it is available again.
	Outage func(context.Context, Outage)
	// Stuck is called when the relay abandons a call of the Publisher that does not return, and when such a call returns.
	Stuck func(context.Context, Stuck)
}

// And returns an Observer that notifies o and then other.
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
	// Destination is the scope of the events. It is empty if the Publisher is not Scoped.
	Destination string
	// Events is the number of events of the call, and Failed the number of those for which the Publisher returned an error of
	// any kind.
	Events, Failed int
	// Began is when the relay called the Publisher, and Duration how long the call took.
	Began    time.Time
	Duration time.Duration
	// Err is the first error, or nil.
	Err error
}

// Settled holds the results that a shard has stored.
type Settled struct {
	Slot int
	// Sent events were published. Failed events are retried after a pause. Returned events were given back without an attempt.
	Sent, Failed, Returned int
	// Parked events stay until an operator acts.
	Parked []Parked
	// Lost events were gone, or another relay had leased them.
	Lost int
}

// Parked is an event that needs an operator.
type Parked struct {
	// ID is empty if the relay that held the event crashed or hung during the last attempt.
	ID string
	// Class and Error are the reason, as in outbox.Event.
	Class, Error string
}

// Outage is the beginning or the end of an outage of a destination.
type Outage struct {
	// Destination is the scope. The empty scope stands for every destination of the Publisher.
	Destination string
	// At is the time of the change. Use it to order calls, which may arrive in another order.
	At time.Time
	// Over reports that the destination is available again.
	Over bool
	// Err is the error of the Publisher, or nil if the outage is over.
	Err error
}

// Stuck is a call of the Publisher that the relay abandoned because it outlived its context, or the late return of one.
type Stuck struct {
	// Destination is the scope of the events. It is empty if the Publisher is not Scoped.
	Destination string
	// Events is the number of events of the call. If the call ran inside a Publisher such as Func or Route, which calls
	// another Publisher for some of its events, only those events count.
	Events int
	// Began is when the relay called the Publisher, and Duration how long ago that was.
	Began    time.Time
	Duration time.Duration
	// Returned reports that the call has returned. Each abandoned call is reported once, and its return at most once.
	Returned bool
}

// published notifies the observer of a call of the Publisher.
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

// settled notifies the observer of the results of a batch that its shard has stored.
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

// crashed notifies the observer of events that were parked because their last relay never settled them.
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
