package amqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/message"
)

var (
	// ErrSubscribed is returned if the Subscriber has a subscription that has not ended.
	ErrSubscribed = errors.New("amqp: already subscribed")
	// ErrNoIdentity is the error of a message without an id, which cannot be recognized when it is delivered again.
	ErrNoIdentity = errors.New("amqp: the message has no identity; set a CloudEvents id or the property message-id in the sender")
)

// SubscriberConfig configures a Subscriber. Queue, and one of URL and Dial, are required.
type SubscriberConfig struct {
	// URL is the URL of the broker: amqp://user:password@host:5672/vhost, or amqps.
	URL string
	// Dial connects instead of URL. Only the subscription uses the connection.
	Dial DialFunc
	// Queue is the name of the queue.
	Queue string
	// Declare is called on each new connection to declare exchanges, the queue and bindings. Defaults to none: the queue must
	// exist.
	Declare func(*amqp091.Channel) error
	// Arguments are the arguments of the consumer, such as x-priority.
	Arguments amqp091.Table
	// MaxInFlight is the maximum number of messages that are handed out and not settled, including those that wait after a nack.
	// It is the prefetch count of the consumer. At most 65535. Defaults to 10.
	MaxInFlight int
	// NackBackoff is how long a nacked message is held if its error does not say. Defaults to 100 ms, doubled with each nack in
	// this process up to 30 s, with full jitter.
	NackBackoff message.Backoff
	// MaxHold limits how long a nacked message is held before it is requeued, even if its error requests more. It must be below
	// the broker's consumer_timeout. Defaults to 10 minutes.
	MaxHold time.Duration
	// DeadLetters states that the queue has a dead-letter exchange. Messages with a permanent error (message.Permanent) and
	// malformed ones are rejected and go there. Without a dead-letter exchange, the broker would drop them, so they are held for
	// RefusedHold and delivered again.
	DeadLetters bool
	// RefusedHold is how long such a message is held. Defaults to 1 minute.
	RefusedHold time.Duration
	// SettleTimeout is how long received messages can be settled after the context of the subscription has ended. Then the
	// connection is closed, and the broker delivers the messages to others. Defaults to 30 s.
	SettleTimeout time.Duration
	// Reconnect is the delay between attempts to connect. Defaults to 100 ms, doubled up to 5 s, with full jitter.
	Reconnect message.Backoff
	// Unmarshal decodes a delivery. Defaults to Unmarshal of this package. A message without a source gets the queue's name. A
	// message without an id is rejected with ErrNoIdentity.
	Unmarshal func(*amqp091.Delivery) (*message.RawMessage, error)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

const (
	dialTimeout = 10 * time.Second
	maxPrefetch = 1<<16 - 1
)

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 10)
	c.MaxHold = cmp.Or(c.MaxHold, 10*time.Minute)
	c.RefusedHold = cmp.Or(c.RefusedHold, time.Minute)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 30*time.Second)
	c.Reconnect.Max = cmp.Or(c.Reconnect.Max, 5*time.Second)
	if c.Dial == nil {
		c.Dial = dialURL(c.URL, dialTimeout)
	}
	if c.Unmarshal == nil {
		c.Unmarshal = Unmarshal
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c SubscriberConfig) validate() error {
	var errs []error
	refuse := func(bad bool, field, remedy string) {
		if bad {
			errs = append(errs, fmt.Errorf("amqp: SubscriberConfig.%s %s", field, remedy))
		}
	}
	errs = append(errs, checkDial("SubscriberConfig", c.URL, c.Dial))
	refuse(c.Queue == "" || len(c.Queue) > shortText, "Queue", "must be a name of 1 to 255 bytes")
	refuse(c.MaxInFlight < 0 || c.MaxInFlight > maxPrefetch, "MaxInFlight", "must be 1 to 65535, or 0 for the default")
	refuse(c.MaxHold < 0 || c.RefusedHold < 0 || c.SettleTimeout < 0, "MaxHold, RefusedHold and SettleTimeout", "must not be negative; use 0 for the default")
	refuse(c.NackBackoff.Base < 0 || c.NackBackoff.Max < 0 || c.Reconnect.Base < 0 || c.Reconnect.Max < 0, "NackBackoff and Reconnect", "must not be negative; use 0 for the default")
	if err := c.Arguments.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("amqp: SubscriberConfig.Arguments: %w", err))
	}
	return errors.Join(errs...)
}

// Subscriber hands out the messages of a queue. An acknowledgement is sent to the broker but not confirmed by it. If the
// connection is lost, the acknowledgement may be lost too, and the message is delivered again. The inbox recognizes it by source
// and id.
type Subscriber struct {
	cfg    SubscriberConfig
	log    *slog.Logger
	active chan struct{} // holds a token while there is a subscription
	nacks  nackCounts
	counts counts
}

// NewSubscriber returns a Subscriber. It does no I/O.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Subscriber{cfg: cfg, log: cfg.Logger.With("queue", cfg.Queue), active: make(chan struct{}, 1)}, nil
}

// Subscribe connects and hands out messages until ctx ends. It reconnects if the connection is lost. When ctx ends, it closes the
// channel and requeues the messages that were not received. Received messages can still be settled until SettleTimeout has
// passed; see Wait.
//
// The error is that of the first connection, or ErrSubscribed if an earlier subscription has not ended.
func (s *Subscriber) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	select {
	case s.active <- struct{}{}:
	default:
		return nil, ErrSubscribed
	}
	sub := &subscription{Subscriber: s, out: make(chan *message.RawMessage, s.cfg.MaxInFlight)}
	first, err := sub.open(ctx)
	if err != nil {
		<-s.active
		return nil, err
	}
	go sub.run(ctx, first)
	return sub.out, nil
}

// Wait waits until no subscription has a connection: its context has ended, and its messages are settled or requeued. If ctx ends
// first, Wait returns the cause.
func (s *Subscriber) Wait(ctx context.Context) error {
	select {
	case s.active <- struct{}{}:
		<-s.active
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// SubscriberStats counts what a Subscriber has done since it was created.
type SubscriberStats struct {
	// Delivered is the number of messages handed out, including redeliveries.
	Delivered int64
	// Redelivered is the number of those that the broker had delivered before.
	Redelivered int64
	// Requeued is the number of messages that went back to the queue.
	Requeued int64
	// Rejected is the number of messages that went to the dead-letter exchange.
	Rejected int64
	// Malformed is the number of messages that could not be decoded or had no identity.
	Malformed int64
	// Lost is the number of messages that were acknowledged or rejected after their connection was lost. They are delivered
	// again.
	Lost int64
	// Connections is the number of connections that were established.
	Connections int64
}

type counts struct {
	delivered, redelivered, requeued, rejected, malformed, lost, connections atomic.Int64
}

// Stats returns the counts.
func (s *Subscriber) Stats() SubscriberStats {
	return SubscriberStats{
		Delivered: s.counts.delivered.Load(), Redelivered: s.counts.redelivered.Load(), Requeued: s.counts.requeued.Load(),
		Rejected: s.counts.rejected.Load(), Malformed: s.counts.malformed.Load(), Lost: s.counts.lost.Load(),
		Connections: s.counts.connections.Load(),
	}
}
