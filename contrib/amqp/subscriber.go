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
	// ErrSubscribed says that the Subscriber has a subscription that has not ended.
	ErrSubscribed = errors.New("amqp: already subscribed")
	// ErrNoIdentity says that nothing tells a message from another one, however often it is delivered: it has no id.
	ErrNoIdentity = errors.New("amqp: the message has no identity: senders must set a CloudEvents id or the property message-id")
)

// SubscriberConfig says what a Subscriber reads, and how. Queue, and one of URL and Dial, are required.
type SubscriberConfig struct {
	// URL is the broker's: amqp://user:password@host:5672/vhost, or amqps.
	URL string
	// Dial connects, instead of URL. The connection is the subscription's alone.
	Dial DialFunc
	// Queue is the queue's name.
	Queue string
	// Declare is called on each new connection, to declare exchanges, queue and bindings. Defaults to nothing: the queue
	// must exist.
	Declare func(*amqp091.Channel) error
	// Arguments are those of the consumer, x-priority say.
	Arguments amqp091.Table
	// MaxInFlight is how many messages are given out and not settled at most, those that wait after a nack included; the
	// broker knows it as the prefetch count. At most 65535. Defaults to 10.
	MaxInFlight int
	// NackBackoff is how long a nacked message is held where its error does not say. Defaults to 100 ms, doubled with
	// each nack in this process up to 30 s, full jitter.
	NackBackoff message.Backoff
	// MaxHold bounds how long a nacked message is held before it goes back to the queue, whatever its error asks for. Keep it
	// below the broker's consumer_timeout. Defaults to 10 minutes.
	MaxHold time.Duration
	// DeadLetters says that the queue has a dead-letter exchange: what is refused for good (message.Permanent), or is no
	// message, is rejected, and goes there. Without one the broker would drop it: such a message is held for RefusedHold
	// instead, and comes again.
	DeadLetters bool
	// RefusedHold is how long that is. Defaults to 1 minute.
	RefusedHold time.Duration
	// SettleTimeout is how long messages that were taken can be settled after a subscription's context has ended. Then the
	// connection is closed, and the broker gives them to others. Defaults to 30 s.
	SettleTimeout time.Duration
	// Reconnect is how long to wait between attempts to connect. Defaults to 100 ms, doubled up to 5 s, full jitter.
	Reconnect message.Backoff
	// Unmarshal makes a message of a delivery. Defaults to Unmarshal of this package. Where the message has no source it
	// gets the queue's name; without an id it is refused, with ErrNoIdentity.
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
	refuse(c.MaxHold < 0 || c.RefusedHold < 0 || c.SettleTimeout < 0, "MaxHold, RefusedHold and SettleTimeout", "must not be negative: use 0 for the default")
	refuse(c.NackBackoff.Base < 0 || c.NackBackoff.Max < 0 || c.Reconnect.Base < 0 || c.Reconnect.Max < 0, "NackBackoff and Reconnect", "must not be negative: use 0 for the default")
	if err := c.Arguments.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("amqp: SubscriberConfig.Arguments: %w", err))
	}
	return errors.Join(errs...)
}

// Subscriber gives out the messages of a queue. A message counts as handled when the broker was sent its acknowledgement,
// which the broker does not confirm: with its connection an acknowledgement may be lost, and the message comes again. The
// inbox knows it by source and id.
type Subscriber struct {
	cfg    SubscriberConfig
	log    *slog.Logger
	active chan struct{} // holds one while there is a subscription
	nacks  nackCounts
	counts counts
}

// NewSubscriber makes a Subscriber; it does no I/O.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Subscriber{cfg: cfg, log: cfg.Logger.With("queue", cfg.Queue), active: make(chan struct{}, 1)}, nil
}

// Subscribe connects, and gives out messages until ctx ends; a connection that is lost is made again. Then the channel is
// closed, and messages that nobody has taken go back to the queue; those that were taken can still be settled, until
// SettleTimeout is over: see Wait.
//
// The error is that of the first connection, or ErrSubscribed while an earlier subscription has not ended.
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

// Wait waits until no subscription holds a connection: its context has ended, and what it gave out is settled or went
// back. It returns the cause where its own context ends before.
func (s *Subscriber) Wait(ctx context.Context) error {
	select {
	case s.active <- struct{}{}:
		<-s.active
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// SubscriberStats counts what a Subscriber has done since it was made.
type SubscriberStats struct {
	// Delivered is how many messages were given out, redeliveries included.
	Delivered int64
	// Redelivered is how many of them the broker had delivered before.
	Redelivered int64
	// Requeued is how many went back to the queue.
	Requeued int64
	// Rejected is how many went to the dead-letter exchange.
	Rejected int64
	// Malformed is how many were no message, or had no identity.
	Malformed int64
	// Lost is how many were acknowledged, or rejected, after their connection was lost: they come again.
	Lost int64
	// Connections is how many connections were made.
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
