package trigger

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/observe"
)

// Observer is called with what becomes of deliveries, for metrics and traces. A function that is nil is not called, and
// costs nothing. Runtime.Stats has the counts, and what is in flight.
//
// The functions are called by the goroutine that worked on the delivery, and several of them at once. A slow one keeps that
// place busy. A panic ends in the log.
type Observer struct {
	// Executed is called when a delivery has run and it is decided what becomes of it. The ack follows.
	Executed func(context.Context, Executed)
}

// And returns an Observer that calls o and then other.
func (o Observer) And(other Observer) Observer {
	return Observer{Executed: observe.Both(o.Executed, other.Executed)}
}

// Executed is a delivery that has run.
type Executed struct {
	// Function and Transport are those of Health.
	Function, Transport string
	// Delivery is the delivery. It must not be changed.
	Delivery *Delivery
	// Duration is the time that the function took, and making its message.
	Duration time.Duration
	// Result is what becomes of the delivery.
	Result Result
	// Err is the error of the function, or why no payload could be built. With Succeeded it is nil, unless the function
	// failed after its commit.
	Err error
}

// Result is what becomes of a delivery.
type Result string

// The results of a delivery.
const (
	// Succeeded deliveries are acked.
	Succeeded Result = "succeeded"
	// Failed entries stay pending, and are tried again.
	Failed Result = "failed"
	// Refused deliveries go to the dead letters.
	Refused Result = "refused"
	// Dropped deliveries have failed and are not delivered again.
	Dropped Result = "dropped"
	// Released entries belong to another consumer by now.
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
