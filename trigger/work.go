package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/luatx/luatx/message"
)

// work is a delivery with its result.
type work struct {
	d            *Delivery
	open         *unfinished
	before       *work       // earlier delivery of the same entry, whose ack is owed
	again        []*Delivery // later deliveries of the same entry while its ack was owed
	acknowledged bool        // by a commit
	refused      string      // reason of a dead letter; empty after a success
	attempts     int         // attempts to write the ack
}

// execute runs the function on the current delivery and notifies the observer.
func (p *place) execute() stateEvent {
	d, began := p.work.d, time.Now()
	event, err := p.try()
	p.observe(d, time.Since(began), event, err)
	return event
}

// try runs the function. It returns the error of the function, or the reason why it did not run.
func (p *place) try() (stateEvent, error) {
	w := p.work
	if m := int64(p.cfg.MaxDeliveries); m > 0 && w.d.Attempt > m {
		err := fmt.Errorf("delivered %d times without a settlement", w.d.Attempt-1)
		return p.refuse(err), err
	}
	msg, err := w.d.message()
	if err != nil {
		err = fmt.Errorf("build payload: %w", err)
		return p.refuse(err), err
	}
	out := outcome{}
	err = p.call(msg, &out)
	if err == nil {
		err = out.nacked
	}
	switch {
	case out.acknowledged:
		w.acknowledged = true
		if err != nil { // its effect is committed
			p.about(w.d, err).Error("trigger: function failed after its commit")
		}
		return onSucceeded, err
	case out.released:
		p.drop(w, false)
		p.work = nil
		return onReleased, err
	case err != nil:
		return p.fail(err), err
	default:
		return onSucceeded, nil
	}
}

// outcome is the settlement of a message by the function or a middleware.
type outcome struct {
	settled, released, acknowledged bool
	nacked                          error
}

// call runs the function. It does not write to the source.
func (p *place) call(msg *message.RawMessage, out *outcome) (err error) {
	d := p.work.d
	acking := message.AckingConfig{
		Ack:     func() { out.settled = true },
		Nack:    func(err error) { out.settled, out.nacked = true, err },
		Release: func() { out.settled, out.released = true, true },
		Settled: func() { out.acknowledged = !out.settled },
	}
	if d.Group != "" {
		acking.Source = message.Source{Stream: d.Stream, Group: d.Group, Consumer: d.Consumer, Entry: d.ID}
	}
	msg.SetAcking(message.NewAckingFrom(acking))
	defer func() {
		if v := recover(); v != nil {
			err = &message.PanicError{Value: v, Stack: debug.Stack()}
		}
		if err != nil {
			msg.Nack(err)
		} else {
			msg.Ack()
		}
		<-msg.Settled() // by any goroutine
	}()
	return p.cfg.Run(msg.Context(p.life), msg)
}

// fail decides the event after a failed function.
func (p *place) fail(err error) stateEvent {
	d := p.work.d
	if message.IsPermanent(err) || p.cfg.MaxDeliveries > 0 && d.Attempt >= int64(p.cfg.MaxDeliveries) {
		return p.refuse(err)
	}
	delay, asked := message.RetryDelay(err)
	if !asked {
		delay = p.cfg.Retry.Entry.Delay(int(max(d.Attempt, 1)))
	}
	return p.failed(err, delay, asked)
}

// refuse makes a dead letter of a delivery that cannot succeed, if the driver supports dead letters.
func (p *place) refuse(err error) stateEvent {
	if _, ok := p.driver.(DeadLetterer); !ok || p.cfg.NoDeadLetter || p.work.d.Once && p.cfg.DeadLetter == "" {
		return p.failed(err, p.cfg.Retry.Entry.Ceiling(1<<10), false)
	}
	p.counts.failed.Add(1)
	p.progress.fail(p.work.open, 0, false)
	p.about(p.work.d, err).Error("trigger: delivery refused")
	p.work.refused = err.Error()
	return onRefused
}

// failed leaves a delivery pending until its retry is due, or drops it if it comes only once. asked means that the function chose
// the delay.
func (p *place) failed(err error, delay time.Duration, asked bool) stateEvent {
	d := p.work.d
	p.counts.failed.Add(1)
	p.progress.fail(p.work.open, delay, asked)
	if p.delay = delay; d.Once {
		p.delay = 0
		p.counts.dropped.Add(1)
		p.about(d, err).Error("trigger: message dropped")
		return onFailed
	}
	p.about(d, err).Error("trigger: entry failed", "retry_in", delay)
	return onFailed
}

// about returns a logger for an error of a delivery.
func (p *place) about(d *Delivery, err error) *slog.Logger {
	p.board.failed(err)
	return p.log.With(d.subject()...).With("error", err)
}

// drop removes a delivery from those in flight.
func (r *running) drop(w *work, settled bool) {
	r.counts.inFlight.Add(-1)
	r.progress.end(w.open, settled && w.refused == "")
	w.d.done(settled)
}

// settle writes the ack or the dead letter, and removes the delivery from those in flight if that succeeded.
func (r *running) settle(w *work) error {
	ctx, cancel := r.settleContext()
	defer cancel()
	if err := r.writeSettlement(ctx, w); err != nil {
		return err
	}
	r.letGo(w, true)
	return nil
}

// letGo removes an entry and its later deliveries from those in flight.
func (r *running) letGo(w *work, settled bool) {
	r.drop(w, settled)
	for _, d := range w.again {
		d.done(settled)
	}
}

// writeSettlement writes the ack or the dead letter of a delivery to the source.
func (r *running) writeSettlement(ctx context.Context, w *work) error {
	switch {
	case w.refused != "":
		letters, ok := r.driver.(DeadLetterer)
		if !ok {
			return errors.New("the driver does not support dead letters")
		}
		if err := letters.DeadLetter(ctx, w.d, w.refused); err != nil {
			return err
		}
		r.counts.deadLettered.Add(1)
	case w.acknowledged:
		r.counts.acked.Add(1)
	case !w.d.Once:
		if err := r.driver.Ack(ctx, w.d); err != nil {
			return err
		}
		r.counts.acked.Add(1)
	}
	return nil
}
