package trigger

import (
	"context"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

// place is one of the Concurrency places of a trigger. Each place runs the state machine. One place at a time has the turn
// and uses the driver: it receives, sleeps and reconnects for all. It passes the turn on when it has a delivery. If the
// function fails, the delivery leaves the place until it is due again.
type place struct {
	*running
	hasTurn bool
	work    *work         // being processed; nil: none
	seen    int64         // the connection on which the work was acked
	delay   time.Duration // of Backoff
}

// run goes through the states until ctx ends. This function decides the action of a state, and the table decides the
// next state.
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

// takeTurn waits for the turn; false when ctx has ended.
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

// complete tells the source what became of the delivery.
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
	if p.hasTurn { // the backoff was reset when nothing came without an error
		if wait, _ := p.retries.wait(idleTime); !sleep.For(ctx, wait) {
			return onShutdown
		}
	}
	return onTick
}

// reconnect connects anew, unless another place has done so since this one failed.
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
	} else if !sleep.For(ctx, p.reconnectDelay(p.refused-1)) { // what connects and cannot receive must not spin
		return onShutdown
	}
	return onReconnected
}

// backoff waits until the next attempt to connect. A failed entry is waited for where entries run strictly in their order,
// else it leaves its place.
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
	return max(p.cfg.Retry.Reconnect.Delay(max(failures, 1)), minDelay)
}

// trouble records that receiving or connecting failed. It logs the first failure and each error that differs from the last.
func (p *place) trouble(op string, err error) {
	p.failures++
	p.board.connected(false)
	if last := p.board.report().LastError; p.failures == 1 || last == nil || last.Error() != err.Error() {
		p.log.Error("trigger: fails and goes on trying", "operation", op, "error", err)
	} else {
		p.log.Debug("trigger: fails again", "operation", op, "failures", p.failures, "error", err)
	}
	p.board.failed(err)
}

// well notes that receiving works.
func (p *place) well() {
	if p.failures > 0 {
		p.log.Info("trigger: receives again", "failures", p.failures)
		p.failures, p.refused = 0, 0
		p.board.connected(true)
	}
}
