package amqp

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/message"
)

// session is a subscription on one connection. Its deliveries can only be settled on that connection.
type session struct {
	*subscription
	conn       *amqp091.Connection
	ch         *amqp091.Channel
	tag        string
	deliveries <-chan amqp091.Delivery
	closed     chan *amqp091.Error

	mu       sync.Mutex
	stopping bool
	over     bool                   // the connection is closed
	open     int                    // deliveries that are not settled
	held     map[uint64]*time.Timer // deliveries that wait after a nack
	empty    chan struct{}          // closed when stopping and no delivery is open
}

func newSession(s *subscription, conn *amqp091.Connection, ch *amqp091.Channel) *session {
	return &session{
		subscription: s, conn: conn, ch: ch, tag: "luatx-" + message.NewID(),
		closed: ch.NotifyClose(make(chan *amqp091.Error, 1)),
		held:   map[uint64]*time.Timer{}, empty: make(chan struct{}),
	}
}

var errCancelled = errors.New("amqp: the broker cancelled the consumer because the queue was deleted or moved")

func (s *session) why() error {
	select {
	case err := <-s.closed:
		return orClosed(err)
	default:
		return errCancelled
	}
}

// deliver hands out messages. It returns true if the session was lost, and false if ctx has ended.
func (s *session) deliver(ctx context.Context) (lost bool) {
	for {
		select {
		case <-ctx.Done():
			return false
		case d, ok := <-s.deliveries:
			if !ok {
				return ctx.Err() == nil
			}
			msg := s.receive(&d)
			if msg == nil {
				continue
			}
			select {
			case s.out <- msg:
			case <-ctx.Done():
				msg.Release()
				return false
			}
		}
	}
}

// receive returns the message of a delivery, or nil if it cannot be decoded.
func (s *session) receive(d *amqp091.Delivery) *message.RawMessage {
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	msg, err := s.unmarshal(d)
	if err != nil {
		s.counts.malformed.Add(1)
		s.refuse(d.DeliveryTag, d.MessageId, err)
		return nil
	}
	s.counts.delivered.Add(1)
	if d.Redelivered {
		s.counts.redelivered.Add(1)
	}
	msg.SetAcking(s.acking(d, msg))
	msg.WithValue(deliveryKey{}, *d)
	return msg
}

type deliveryKey struct{}

// DeliveryFromContext returns the delivery of the message that is being handled, with its routing key, its headers and whether it
// was delivered before. Do not settle the delivery; settle the message.
func DeliveryFromContext(ctx context.Context) (amqp091.Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(amqp091.Delivery)
	return d, ok
}

func (s *session) unmarshal(d *amqp091.Delivery) (*message.RawMessage, error) {
	msg, err := inbound.Decode(d, s.cfg.Unmarshal)
	if err != nil {
		return nil, err
	}
	if msg.ID() == "" {
		return nil, ErrNoIdentity
	}
	if msg.Source() == "" {
		msg.Attributes[message.AttrSource] = s.cfg.Queue
	}
	return msg, nil
}

// stop ends the consumer, and requeues the waiting deliveries.
func (s *session) stop() {
	s.mu.Lock()
	s.stopping = true
	for tag, timer := range s.held {
		if timer.Stop() {
			timer.Reset(0)
		}
		delete(s.held, tag)
	}
	s.signalEmpty()
	s.mu.Unlock()
	cutter := time.AfterFunc(grace, func() { hangUp(s.conn, 0) }) // the calls below ignore contexts
	err := s.ch.Cancel(s.tag, false)
	cutter.Stop()
	if err != nil {
		return // the broker requeues everything with the connection
	}
	for d := range s.deliveries {
		_ = s.ch.Nack(d.DeliveryTag, false, true) // if it fails, the lost connection requeues the delivery
		s.counts.requeued.Add(1)
	}
}

// signalEmpty closes empty once the stopping session has no open deliveries. The caller holds the lock.
func (s *session) signalEmpty() {
	if s.stopping && s.open == 0 && !isDone(s.empty) {
		close(s.empty)
	}
}

// settleRest waits until all messages are settled, or the connection is lost.
func (s *session) settleRest(patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.empty:
	case err := <-s.closed:
		s.log.Debug("amqp: connection lost with unsettled messages", "error", orClosed(err))
	case <-timer.C:
		s.log.Error("amqp: settle timeout exceeded")
	}
}

// close closes the connection. The broker requeues unsettled deliveries.
func (s *session) close(patience time.Duration) {
	s.mu.Lock()
	s.over = true
	for _, timer := range s.held {
		timer.Stop()
	}
	clear(s.held)
	s.mu.Unlock()
	hangUp(s.conn, patience)
}
