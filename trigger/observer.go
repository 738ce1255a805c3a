package trigger

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/observe"
)

// Observer has functions that are called with the results of deliveries, for metrics and traces. Nil functions are skipped.
// Runtime.Stats has the counts and the deliveries in flight. The goroutine that processed the delivery calls the functions, so
// calls may be concurrent, and a slow function occupies its place. The trigger logs a panic.
type Observer struct {
	// Executed is called when the function has run and the result is known, before the ack.
	Executed func(context.Context, Executed)
}

// And returns an Observer that calls o and then other.
func (o Observer) And(other Observer) Observer {
	return Observer{Executed: observe.Both(o.Executed, other.Executed)}
}

// Executed describes a delivery whose function has run.
type Executed struct {
	// Function and Transport are the fields of Health.
	Function, Transport string
	// Delivery is the delivery. It must not be modified.
	Delivery *Delivery
	// Duration is the time that the function took, including the construction of its message.
	Duration time.Duration
	// Result is the result of the delivery.
	Result Result
	// Err is the error of the function, or of a payload that could not be built. With Succeeded it is nil, unless the function
	// failed after its commit.
	Err error
}

// Result is the result of a delivery.
type Result string

// The results of a delivery.
const (
	// Succeeded deliveries are acked.
	Succeeded Result = "succeeded"
	// Failed entries stay pending and are retried.
	Failed Result = "failed"
	// Refused deliveries are moved to the dead letters.
	Refused Result = "refused"
	// Dropped deliveries have failed, and the source does not deliver them again.
	Dropped Result = "dropped"
	// Released entries belong to another consumer now.
	Released Result = "released"
)

// observe calls the observer.
func (p *place) observe(d *Delivery, took time.Duration, on stateEvent, err error) {
	if p.cfg.Observer.Executed == nil {
		return
	}
	h := p.board.report()
	result := map[stateEvent]Result{onSucceeded: Succeeded, onRefused: Refused, onReleased: Released, onFailed: Failed}[on]
	if d.Once && result == Failed {
		result = Dropped
	}
	observe.Tell(p.life, p.log, p.cfg.Observer.Executed, Executed{h.Function, h.Transport, d, took, result, err})
}
