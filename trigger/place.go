package trigger

import (
	"context"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

// place is one of the Concurrency places of a trigger. Each place runs the state machine. One place at a time has the turn and
// uses the driver: it receives, sleeps and reconnects for all places. It passes the turn on when it has a delivery. If the
// function fails, the delivery leaves the place until its retry is due.
type place struct {
	*running
	hasTurn bool
	work    *work         // nil if there is none
	seen    int64         // the connection on which the work was acked
	delay   time.Duration // of the state Backoff
}

// run runs the state machine until ctx ends. It decides the event of each state; the table has the next state.
func (p *place) run(ctx context.Context) error {
	state := Receiving
	for !state.Final() {
		event := p.act(ctx, state)
		next, ok := state.after(event)
		if !ok {
			p.giveTurn()
			return fmt.Errorf("trigger: %q cannot happen while %s", event, state)
		}
		p.board.show(state, event, next, p.hasTurn)
		state = next
	}
	p.giveTurn()
	return nil
}

func (p *place) act(ctx context.Context, s State) stateEvent {
	switch s {
	case Receiving:
		return p.receive(ctx)
	case Executing:
		return p.execute()
	case Completed:
		return p.complete()
	case Idle:
		return p.idle(ctx)
	case Reconnecting:
		return p.reconnect(ctx)
	case Backoff:
		return p.backoff(ctx)
	default:
		return onShutdown
	}
}

// takeTurn waits for the turn. It returns false if ctx has ended.
func (p *place) takeTurn(ctx context.Context, s State) bool {
	if p.hasTurn {
		return ctx.Err() == nil
	}
	select {
	case p.turn <- struct{}{}:
		p.hasTurn = true
		p.board.taken(s)
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (p *place) giveTurn() {
	if p.hasTurn {
		p.hasTurn = false
		p.board.given()
		<-p.turn
	}
}

func (p *place) receive(ctx context.Context) stateEvent {
	if !p.takeTurn(ctx, Receiving) {
		return onShutdown
	}
	err := p.payDue()
	var d *Delivery
	if err == nil {
		d, err = p.next(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return onShutdown
	case err != nil:
		p.refused++
		p.trouble("receive", err)
		return onReceiveFailed
	}
	p.well()
	if d == nil {
		return onNothing
	}
	p.giveTurn()
	p.counts.delivered.Add(1)
	p.work = &work{d: d, before: p.owed.find(d)}
	if p.work.before != nil {
		return onDoneBefore
	}
	p.work.open = p.progress.begin(d)
	p.counts.inFlight.Add(1)
	return onDelivered
}

// complete writes the ack or the dead letter of the delivery.
func (p *place) complete() stateEvent {
	p.seen = p.connection.Load()
	w := p.work
	p.work = nil
	if w.before != nil {
		if !p.payAgain(w) {
			return onAckFailed
		}
		return onAcked
	}
	if err := p.settle(w); err != nil {
		p.owe(w, err)
		return onAckFailed
	}
	return onAcked
}

func (p *place) idle(ctx context.Context) stateEvent {
	if ctx.Err() != nil {
		return onShutdown
	}
	if p.hasTurn { // a read without an error has reset the backoff
		if wait, _ := p.retries.wait(idleTime); !sleep.For(ctx, wait) {
			return onShutdown
		}
	}
	return onTick
}

// reconnect reconnects the driver, unless another place has done so since this place failed.
func (p *place) reconnect(ctx context.Context) stateEvent {
	had := p.hasTurn
	if !p.takeTurn(ctx, Reconnecting) {
		return onShutdown
	}
	if had || p.seen == p.connection.Load() {
		if err := p.driver.Reconnect(ctx); err != nil {
			if ctx.Err() != nil {
				return onShutdown
			}
			p.trouble("reconnect", err)
			p.delay = p.reconnectDelay(p.failures - 1)
			return onReconnectFailed
		}
		p.connection.Add(1)
		p.counts.reconnects.Add(1)
		p.log.Info("trigger: reconnected")
	}
	if p.refused <= 1 {
		p.board.connected(true)
	} else if !sleep.For(ctx, p.reconnectDelay(p.refused-1)) { // a driver that connects but cannot receive must not spin
		return onShutdown
	}
	return onReconnected
}

// backoff waits until the next attempt to connect. With Config.Ordered it waits for a failed entry; otherwise the entry leaves
// its place.
func (p *place) backoff(ctx context.Context) stateEvent {
	w, event := p.work, onReconnectDue
	p.work = nil
	if w != nil {
		if !p.cfg.Ordered && !w.d.Once {
			p.postpone(w, p.delay)
			return onPostponed
		}
		event = onEntryDue
	}
	waited := sleep.For(ctx, p.delay)
	if w != nil {
		p.drop(w, false)
	}
	if !waited {
		return onShutdown
	}
	return event
}

func (p *place) reconnectDelay(failures int) time.Duration {
	return max(p.cfg.Retry.Reconnect.Delay(failures), minDelay)
}

// trouble records that receiving or connecting failed. It logs the first failure and each error that differs from the last.
func (p *place) trouble(op string, err error) {
	p.failures++
	p.board.connected(false)
	if last := p.board.report().LastError; p.failures == 1 || last == nil || last.Error() != err.Error() {
		p.log.Error("trigger: receiving failed", "operation", op, "error", err)
	} else {
		p.log.Debug("trigger: receiving still fails", "operation", op, "failures", p.failures, "error", err)
	}
	p.board.failed(err)
}

// well records that receiving works.
func (p *place) well() {
	if p.failures > 0 {
		p.log.Info("trigger: receiving recovered", "failures", p.failures)
		p.failures, p.refused = 0, 0
		p.board.connected(true)
	}
}
