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

// work is a delivery and what became of it.
type work struct {
	d            *Delivery
	open         *unfinished
	before       *work       // that has done the same entry, and whose ack is owed
	again        []*Delivery // the same entry, delivered while its ack was owed
	acknowledged bool        // by a commit
	refused      string      // why it is a dead letter; empty for one that succeeded
	attempts     int         // of telling the source
}

// execute runs the function on the current delivery and notifies the observer.
func (l *lane) execute() stateEvent {
	d, began := l.work.d, time.Now()
	event, err := l.try()
	l.observe(d, time.Since(began), event, err)
	return event
}

// try runs the function. The error is that of the function, or why it did not run.
func (l *lane) try() (stateEvent, error) {
	w := l.work
	if m := int64(l.cfg.MaxDeliveries); m > 0 && w.d.Attempt > m {
		err := fmt.Errorf("delivered %d times and never settled: its process died, hung or lost it", w.d.Attempt-1)
		return l.refuse(err), err
	}
	msg, err := w.d.message()
	if err != nil {
		err = fmt.Errorf("no payload can be built: %w", err)
		return l.refuse(err), err
	}
	out := outcome{}
	err = l.call(msg, &out)
	if err == nil {
		err = out.nacked
	}
	switch {
	case out.acknowledged:
		w.acknowledged = true
		if err != nil { // its effect is committed
			l.about(w.d, err).Error("trigger: function failed behind its commit")
		}
		return onSucceeded, err
	case out.released:
		l.drop(w, false)
		l.work = nil
		return onReleased, err
	case err != nil:
		return l.fail(err), err
	default:
		return onSucceeded, nil
	}
}

// outcome is how a message was settled, by the function or behind it.
type outcome struct {
	told, released, acknowledged bool
	nacked                       error
}

// call runs the function. Nothing is told to the source yet.
func (l *lane) call(msg *message.RawMessage, out *outcome) (err error) {
	d := l.work.d
	acking := message.AckingConfig{
		Ack:     func() { out.told = true },
		Nack:    func(err error) { out.told, out.nacked = true, err },
		Release: func() { out.told, out.released = true, true },
		Settled: func() { out.acknowledged = !out.told },
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
		<-msg.Settled() // by whichever goroutine
	}()
	return l.cfg.Run(msg.Context(l.life), msg)
}

// fail decides what becomes of a delivery whose function failed.
func (l *lane) fail(err error) stateEvent {
	d := l.work.d
	if message.IsPermanent(err) || l.cfg.MaxDeliveries > 0 && d.Attempt >= int64(l.cfg.MaxDeliveries) {
		return l.refuse(err)
	}
	delay, asked := message.RetryDelay(err)
	if !asked {
		delay = l.cfg.Retry.Entry.Delay(int(max(d.Attempt, 1)))
	}
	return l.failed(err, delay, asked)
}

// refuse makes a dead letter of what will never succeed, where that can be written.
func (l *lane) refuse(err error) stateEvent {
	if _, ok := l.driver.(DeadLetterer); !ok || l.cfg.NoDeadLetter || l.work.d.Once && l.cfg.DeadLetter == "" {
		return l.failed(err, l.cfg.Retry.Entry.Ceiling(1<<10), false)
	}
	l.counts.failed.Add(1)
	l.progress.fail(l.work.open, 0, false)
	l.about(l.work.d, err).Error("trigger: delivery refused for good")
	l.work.refused = err.Error()
	return onRefused
}

// failed leaves a delivery pending until it is due again, or drops it if it is not delivered again. asked says that the
// function chose the delay.
func (l *lane) failed(err error, delay time.Duration, asked bool) stateEvent {
	d := l.work.d
	l.counts.failed.Add(1)
	l.progress.fail(l.work.open, delay, asked)
	if l.delay = delay; d.Once {
		l.delay = 0
		l.counts.dropped.Add(1)
		l.about(d, err).Error("trigger: function failed, the message is gone")
		return onFailed
	}
	l.about(d, err).Error("trigger: function failed, the entry stays pending", "retry_in", delay)
	return onFailed
}

// about returns a logger for what went wrong with a delivery.
func (l *lane) about(d *Delivery, err error) *slog.Logger {
	l.board.failed(err)
	return l.log.With(d.subject()...).With("error", err)
}

// drop lets go of a delivery that was in flight.
func (r *running) drop(w *work, settled bool) {
	r.counts.inFlight.Add(-1)
	r.progress.end(w.open, settled && w.refused == "")
	w.d.done(settled)
}

// settle tells the source, and lets go of the delivery where that succeeded.
func (r *running) settle(w *work) error {
	ctx, cancel := r.tell()
	defer cancel()
	if err := r.tellOf(ctx, w); err != nil {
		return err
	}
	r.letGo(w, true)
	return nil
}

// letGo lets go of an entry, and of what came of it again while its ack was owed.
func (r *running) letGo(w *work, settled bool) {
	r.drop(w, settled)
	for _, d := range w.again {
		d.done(settled)
	}
}

func (r *running) tellOf(ctx context.Context, w *work) error {
	switch {
	case w.refused != "":
		letters, ok := r.driver.(DeadLetterer)
		if !ok {
			return errors.New("the driver takes no dead letters")
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
