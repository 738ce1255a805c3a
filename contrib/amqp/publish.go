package amqp

import (
	"context"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// Publish implements relay.Publisher. It publishes the whole batch and then waits for the confirms.
func (p *Publisher) Publish(ctx context.Context, events []*message.RawMessage) []error {
	p.busy.RLock()
	defer p.busy.RUnlock()
	b := &batch{p: p, outer: ctx, errs: make([]error, len(events)), exchanges: map[string]error{}}
	bounded, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	waiting := make([]*letter, len(events))
	for i, event := range events {
		waiting[i] = p.letter(i, event)
	}
	failed := map[string]error{} // lanes with an event that was not sent
	for len(waiting) > 0 {
		var now []*letter
		now, waiting = b.next(waiting, failed)
		b.send(bounded, now)
		for _, l := range now {
			if err := b.errs[l.at]; err != nil && l.lane != "" {
				failed[l.lane] = err
			}
		}
	}
	return b.errs
}

// batch is one call of Publish.
type batch struct {
	p         *Publisher
	outer     context.Context
	errs      []error
	down      error            // there is no connection: the result for all remaining events
	exchanges map[string]error // exchanges that reject all events
}

// next selects the letters that may be sent now: of each lane only the first. It sets the result of the letters behind one that
// was not sent.
func (b *batch) next(waiting []*letter, failed map[string]error) (now, rest []*letter) {
	busy := map[string]bool{}
	for _, l := range waiting {
		err := failed[l.lane]
		switch {
		case l.lane != "" && errors.Is(err, relay.ErrUnavailable), l.lane != "" && errors.Is(err, relay.ErrLater):
			b.errs[l.at] = err // so that both are due again at the same time
		case l.lane != "" && err != nil:
			b.errs[l.at] = relay.Later(errBehind, 0)
		case l.err != nil && !busy[l.lane]:
			b.errs[l.at] = l.err
			if l.lane != "" {
				failed[l.lane] = l.err
			}
		case len(now) == window, busy[l.lane]:
			busy[l.lane] = l.lane != ""
			rest = append(rest, l)
		default:
			busy[l.lane] = l.lane != ""
			now = append(now, l)
		}
	}
	return now, rest
}

// send publishes letters and sets their results. If the broker closes the channel because of one of them, it is unknown which
// one, so send continues one by one.
func (b *batch) send(ctx context.Context, letters []*letter) {
	for size := len(letters); len(letters) > 0; {
		now := letters[:min(size, len(letters))]
		letters = letters[len(now):]
		if err := b.hopeless(now); err != nil {
			b.answer(now, err)
			continue
		}
		unsure, exception := b.round(ctx, now)
		switch {
		case exception == nil, len(unsure) == 0:
		case len(now) == 1:
			b.answer(now, refusal(now[0], exception))
			if isOfExchange(exception) {
				b.exchanges[now[0].exchange] = relay.Classify(classOf(exception), fmt.Errorf("%w: %w", errSame, exception))
			}
		default:
			letters, size = unsure, 1
		}
	}
}

// hopeless returns the result for letters that need not be tried.
func (b *batch) hopeless(letters []*letter) error {
	if b.down != nil {
		return b.down
	}
	if len(letters) == 1 {
		return b.exchanges[letters[0].exchange]
	}
	return nil
}

func (b *batch) answer(letters []*letter, err error) {
	for _, l := range letters {
		b.errs[l.at] = err
	}
}

// round publishes letters on a channel and sets their results. If the channel is closed, round returns the letters without a
// result and the reason.
func (b *batch) round(ctx context.Context, letters []*letter) (unsure []*letter, exception *amqp091.Error) {
	ch, err := b.p.channel(ctx)
	if err != nil {
		b.lost(ctx, letters, err)
		return nil, nil
	}
	letters = b.fitting(letters, ch.link.conn.Config.FrameSize)
	sent := ch.publish(ctx, letters, !b.p.cfg.NoMandatory)
	ch.await(ctx, sent)
	unsure, confirmed := b.judge(letters, sent, ch.returned(), ch.IsClosed())
	switch {
	case len(unsure) == 0 && !ch.IsClosed():
		ch.giveBack()
		return nil, nil
	case ch.IsClosed():
		err := <-ch.closed // nil if it was closed locally
		if isException(err) {
			return unsure, err
		}
		b.lost(ctx, unsure, fmt.Errorf("amqp: the connection was lost: %w", orClosed(err)))
		return nil, nil
	}
	isBlocked := isDone(ch.link.blocking())
	ch.discard()
	b.silent(unsure, isBlocked, confirmed)
	return nil, nil
}

func orClosed(err *amqp091.Error) error {
	if err == nil {
		return amqp091.ErrClosed
	}
	return err
}

// fitting sets the result of letters that are too large for a frame, and returns the others.
func (b *batch) fitting(letters []*letter, frame int) []*letter {
	var ok []*letter
	for _, l := range letters {
		if err := fits(&l.publishing, frame); err != nil {
			b.errs[l.at] = err
		} else {
			ok = append(ok, l)
		}
	}
	return ok
}

// judge sets the results of the letters that the broker has confirmed, nacked or returned.
func (b *batch) judge(letters []*letter, sent []*amqp091.DeferredConfirmation, returned map[mail]amqp091.Return, closed bool) (unsure []*letter, confirmed bool) {
	for i, l := range letters {
		back, isBack := returned[mail{l.exchange, l.key, l.publishing.MessageId}]
		switch {
		case i >= len(sent) || !isDone(sent[i].Done()), !sent[i].Acked() && closed:
			unsure = append(unsure, l)
			continue
		case !sent[i].Acked():
			b.errs[l.at] = relay.Later(relay.Classify("nacked", fmt.Errorf("%w: exchange %q, routing key %q", ErrNacked, l.exchange, l.key)), laterDelay)
		case isBack:
			b.errs[l.at] = relay.Classify("unroutable", fmt.Errorf("%w: exchange %q, routing key %q: %d %s", ErrUnroutable, l.exchange, l.key, back.ReplyCode, back.ReplyText))
		default:
			b.errs[l.at] = nil
		}
		confirmed = true
	}
	return unsure, confirmed
}

// lost sets the results of letters without a connection, and stops the batch.
func (b *batch) lost(ctx context.Context, letters []*letter, err error) {
	switch {
	case b.outer.Err() != nil: // the relay stops, or its time has run out
		b.down = relay.Later(err, 0)
	case errors.Is(err, ErrBlocked):
		b.down = relay.Unavailable(relay.Classify("blocked", err))
	case ctx.Err() != nil:
		b.down = relay.Unavailable(relay.Classify("network", fmt.Errorf("amqp: connect in time: %w", err)))
	default:
		b.down = unreachable(err)
	}
	b.answer(letters, b.down)
}

// silent sets the results of letters that may have been sent and were not confirmed in time.
func (b *batch) silent(letters []*letter, isBlocked, confirmed bool) {
	var err error
	switch {
	case errors.Is(b.outer.Err(), context.Canceled):
		err = relay.Later(context.Cause(b.outer), 0)
	case isBlocked:
		err = relay.Unavailable(relay.Classify("blocked", ErrBlocked))
	case confirmed: // the broker responds
		err = relay.Later(relay.Classify("no_confirm", ErrUnconfirmed), laterDelay)
	default:
		err = relay.Unavailable(relay.Classify("no_confirm", ErrUnconfirmed))
	}
	if !confirmed {
		b.down = err
	}
	b.answer(letters, err)
}
