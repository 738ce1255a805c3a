package amqp

import (
	"context"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

// subscription is one run of a Subscriber, with one session after the other.
type subscription struct {
	*Subscriber
	out chan *message.RawMessage
}

// run hands out messages until ctx ends.
func (s *subscription) run(ctx context.Context, current *session) {
	defer func() { <-s.active }()
	for current != nil && current.deliver(ctx) {
		s.log.Error("amqp: connection lost", "error", current.why())
		current.close(0)
		s.drain() // the broker delivers these again
		current = s.reopen(ctx)
	}
	if current != nil {
		current.stop()
	}
	s.drain()
	close(s.out)
	if current != nil {
		current.settleRest(s.cfg.SettleTimeout)
		current.close(grace)
	}
}

// drain releases messages that were not received.
func (s *subscription) drain() {
	for {
		select {
		case msg := <-s.out:
			msg.Release()
		default:
			return
		}
	}
}

// reopen retries the connection until it succeeds. It returns nil after ctx has ended.
func (s *subscription) reopen(ctx context.Context) *session {
	for attempt := 1; sleep.For(ctx, s.cfg.Reconnect.Delay(attempt)); attempt++ {
		next, err := s.open(ctx)
		if err == nil {
			s.log.Info("amqp: reconnected", "attempts", attempt)
			return next
		}
		s.log.Debug("amqp: connect failed", "error", err)
	}
	return nil
}

// open connects and begins to consume.
func (s *subscription) open(ctx context.Context) (*session, error) {
	conn, err := dial(ctx, s.cfg.Dial)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { hangUp(conn, 0) }) // the calls below ignore contexts
	next, err := s.consume(conn)
	if !stop() {
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		hangUp(conn, grace)
		return nil, err
	}
	s.counts.connections.Add(1)
	return next, nil
}

func (s *subscription) consume(conn *amqp091.Connection) (*session, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("amqp: open a channel: %w", err)
	}
	next := newSession(s, conn, ch)
	if s.cfg.Declare != nil {
		if err := s.cfg.Declare(ch); err != nil {
			return nil, fmt.Errorf("amqp: SubscriberConfig.Declare: %w", err)
		}
	}
	if err := ch.Qos(s.cfg.MaxInFlight, 0, false); err != nil {
		return nil, fmt.Errorf("amqp: set the prefetch count: %w", err)
	}
	next.deliveries, err = ch.Consume(s.cfg.Queue, next.tag, false, false, false, false, s.cfg.Arguments)
	if err != nil {
		return nil, fmt.Errorf("amqp: consume queue %q: %w", s.cfg.Queue, err)
	}
	return next, nil
}
