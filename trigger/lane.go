package trigger

import (
	"context"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

// lane is one place of a trigger's Concurrency: it goes through the states by itself. Of all lanes one has the turn, and
// with it the driver: it receives, sleeps and reconnects for all. Once it has a delivery, it passes the turn on. A delivery
// whose function failed leaves the lane until it is due again, so that the lane is free for another one.
type lane struct {
	*running
	hasTurn bool
	work    *work         // in hand
	seen    int64         // the connection on which the work was acked
	delay   time.Duration // of Backoff
}

// run goes through the states until ctx ends. What happens in a state is decided here, where that leads in the table.
func (l *lane) run(ctx context.Context) error {
	state := Receiving
	for !state.Final() {
		event := l.act(ctx, state)
		next, ok := state.after(event)
		if !ok {
			l.giveTurn()
			return fmt.Errorf("trigger: %q cannot happen while %s", event, state)
		}
		l.board.show(state, event, next, l.hasTurn)
		state = next
	}
	l.giveTurn()
	return nil
}

func (l *lane) act(ctx context.Context, s State) stateEvent {
	switch s {
	case Receiving:
		return l.receive(ctx)
	case Executing:
		return l.execute()
	case Completed:
		return l.complete()
	case Idle:
		return l.idle(ctx)
	case Reconnecting:
		return l.reconnect(ctx)
	case Backoff:
		return l.backoff(ctx)
	default:
		return onShutdown
	}
}

// takeTurn waits for the turn; false when ctx has ended.
func (l *lane) takeTurn(ctx context.Context, s State) bool {
	if l.hasTurn {
		return ctx.Err() == nil
	}
	select {
	case l.turn <- struct{}{}:
		l.hasTurn = true
		l.board.taken(s)
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (l *lane) giveTurn() {
	if l.hasTurn {
		l.hasTurn = false
		l.board.given()
		<-l.turn
	}
}

func (l *lane) receive(ctx context.Context) stateEvent {
	if !l.takeTurn(ctx, Receiving) {
		return onShutdown
	}
	err := l.payDue()
	var d *Delivery
	if err == nil {
		d, err = l.next(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return onShutdown
	case err != nil:
		l.refused++
		l.trouble("receive", err)
		return onReceiveFailed
	}
	l.well()
	if d == nil {
		return onNothing
	}
	l.giveTurn()
	l.counts.delivered.Add(1)
	l.work = &work{d: d, before: l.owed.find(d)}
	if l.work.before != nil {
		return onDoneBefore
	}
	l.work.open = l.progress.begin(d)
	l.counts.inFlight.Add(1)
	return onDelivered
}

// complete tells the source what became of the delivery.
func (l *lane) complete() stateEvent {
	l.seen = l.connection.Load()
	w := l.work
	l.work = nil
	if w.before != nil {
		if !l.payAgain(w) {
			return onAckFailed
		}
		return onAcked
	}
	if err := l.settle(w); err != nil {
		l.owe(w, err)
		return onAckFailed
	}
	return onAcked
}

func (l *lane) idle(ctx context.Context) stateEvent {
	if ctx.Err() != nil {
		return onShutdown
	}
	if l.hasTurn { // the backoff was reset when nothing came without an error
		if wait, _ := l.retries.wait(idleTime); !sleep.For(ctx, wait) {
			return onShutdown
		}
	}
	return onTick
}

// reconnect connects anew, unless another lane has done so since this one failed.
func (l *lane) reconnect(ctx context.Context) stateEvent {
	had := l.hasTurn
	if !l.takeTurn(ctx, Reconnecting) {
		return onShutdown
	}
	if had || l.seen == l.connection.Load() {
		if err := l.driver.Reconnect(ctx); err != nil {
			if ctx.Err() != nil {
				return onShutdown
			}
			l.trouble("reconnect", err)
			l.delay = l.reconnectDelay(l.failures - 1)
			return onReconnectFailed
		}
		l.connection.Add(1)
		l.counts.reconnects.Add(1)
		l.log.Info("trigger: reconnected")
	}
	if l.refused <= 1 {
		l.board.connected(true)
	} else if !sleep.For(ctx, l.reconnectDelay(l.refused-1)) { // what connects and cannot receive must not spin
		return onShutdown
	}
	return onReconnected
}

// backoff waits until the next attempt to connect. A failed entry is waited for where entries run strictly in their order,
// else it leaves its place.
func (l *lane) backoff(ctx context.Context) stateEvent {
	w, event := l.work, onReconnectDue
	l.work = nil
	if w != nil {
		if !l.cfg.Ordered && !w.d.Once {
			l.postpone(w, l.delay)
			return onPostponed
		}
		event = onEntryDue
	}
	waited := sleep.For(ctx, l.delay)
	if w != nil {
		l.drop(w, false)
	}
	if !waited {
		return onShutdown
	}
	return event
}

func (l *lane) reconnectDelay(failures int) time.Duration {
	return max(l.cfg.Retry.Reconnect.Delay(max(failures, 1)), minDelay)
}

// trouble notes that receiving or connecting failed; the log hears of it when it begins, and of every other error.
func (l *lane) trouble(op string, err error) {
	l.failures++
	l.board.connected(false)
	if last := l.board.report().LastError; l.failures == 1 || last == nil || last.Error() != err.Error() {
		l.log.Error("trigger: fails and goes on trying", "operation", op, "error", err)
	} else {
		l.log.Debug("trigger: fails again", "operation", op, "failures", l.failures, "error", err)
	}
	l.board.failed(err)
}

// well notes that receiving works.
func (l *lane) well() {
	if l.failures > 0 {
		l.log.Info("trigger: receives again", "failures", l.failures)
		l.failures, l.refused = 0, 0
		l.board.connected(true)
	}
}
