package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

const (
	defaultInFlight = 100
	// fetchTime is the duration of one request for messages. The server confirms the request every fetchBeat; if two
	// confirmations are missing, the request is repeated.
	fetchTime = 5 * time.Second
	fetchBeat = 500 * time.Millisecond
)

// SubscriberConfig configures a Subscriber. Stream and Durable are required.
type SubscriberConfig struct {
	// Stream is the name of the stream.
	Stream string
	// Durable is the name of the consumer. Subscribers with the same name share its messages.
	Durable string
	// Consumer is the config for creating the consumer if it does not exist. An existing consumer is used unchanged. The
	// Subscriber sets Durable and AckPolicy. Defaults to everything in the stream from its beginning.
	//
	// With MaxAckPending 1, and MaxInFlight 1, the Subscriber keeps the order of the messages, and each has a Position. Then an
	// existing consumer that does not keep the order is an error of Subscribe.
	Consumer jetstream.ConsumerConfig
	// MaxInFlight is the maximum number of messages that are handed out and not settled, including those that wait in the
	// channel. Defaults to 100.
	MaxInFlight int
	// NackBackoff is the delay after which a nacked message is delivered again if its error does not say. Defaults to 100 ms,
	// doubled with each delivery up to 30 s, with full jitter.
	NackBackoff message.Backoff
	// MaxDeliveries is the number of deliveries after which a nacked message counts as rejected for good. Defaults to 0: there is
	// no limit except the consumer's own MaxDeliver.
	MaxDeliveries int
	// DeadLetter publishes messages with a permanent error (message.Permanent) and messages that cannot be decoded, with the
	// attribute deadletterreason. Then the consumer terminates them. Defaults to none: they are terminated with an advisory of
	// the server and a log line, and the stream keeps them within its own limits.
	DeadLetter relay.Publisher
	// NoHeartbeat sends no progress signals while a message is being handled. The consumer's AckWait must then exceed the time of
	// the slowest handler, including the wait for a free worker.
	NoHeartbeat bool
	// Unmarshal decodes a JetStream message. Defaults to CloudEvents in either mode, and to plain data with the subject as its
	// type. A message without an id gets one from the stream's sequence and the time at which it was stored. A message without a
	// source gets nats:// and the stream's name.
	Unmarshal func(jetstream.Msg) (*message.RawMessage, error)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// AttrReason is the attribute with the reason of a dead letter: deadletterreason.
const AttrReason = inbound.AttrReason

// Subscriber passes the messages of a durable pull consumer to a router. It delivers at least once, and acknowledges a message
// only after it was acked.
type Subscriber struct {
	js  jetstream.JetStream
	cfg SubscriberConfig
}

// NewSubscriber returns a Subscriber. It does no I/O, and never closes the connection, which should reconnect without a limit
// (nats.MaxReconnects(-1)).
func NewSubscriber(js jetstream.JetStream, cfg SubscriberConfig) (*Subscriber, error) {
	var errs []error
	refuse := func(bad bool, field, remedy string) {
		if bad {
			errs = append(errs, fmt.Errorf("nats: SubscriberConfig.%s %s", field, remedy))
		}
	}
	if js == nil {
		errs = append(errs, errors.New("nats: NewSubscriber: js is nil; create one with jetstream.New"))
	}
	refuse(cfg.Stream == "", "Stream", "is empty; name the stream")
	refuse(cfg.Durable == "", "Durable", "is empty; name the consumer, as the service is called")
	refuse(cfg.MaxInFlight < 0, "MaxInFlight", "is negative; use 0 for the default")
	refuse(cfg.MaxDeliveries < 0, "MaxDeliveries", "is negative; use 0 for no bound")
	refuse(cfg.NackBackoff.Base < 0 || cfg.NackBackoff.Max < 0, "NackBackoff", "has a negative time; use 0 for the default")
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, defaultInFlight)
	if cfg.Unmarshal == nil {
		cfg.Unmarshal = func(msg jetstream.Msg) (*message.RawMessage, error) {
			return decode(msg.Subject(), msg.Headers(), msg.Data())
		}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.Consumer.Durable, cfg.Consumer.AckPolicy = cfg.Durable, jetstream.AckExplicitPolicy
	return &Subscriber{js, cfg}, errors.Join(errs...)
}

// Subscribe reads until ctx ends. Then it returns the messages that were not received, and closes the channel. Messages that are
// still being handled can be settled as long as the connection is open; each has the consumer's AckWait left. Messages that the
// server sent at the moment of the end are delivered again after that time.
//
// Subscribe returns an error if it cannot find or create the consumer. Later errors of the server are logged, and reading
// continues.
func (s *Subscriber) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	consumer, err := s.consumer(ctx)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s)
	go sub.run(ctx, consumer)
	return sub.out, nil
}

// consumer returns the consumer, and creates it if it does not exist.
func (s *Subscriber) consumer(ctx context.Context) (jetstream.Consumer, error) {
	c, err := s.js.Consumer(ctx, s.cfg.Stream, s.cfg.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = s.js.CreateConsumer(ctx, s.cfg.Stream, s.cfg.Consumer)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process created it meanwhile
			c, err = s.js.Consumer(ctx, s.cfg.Stream, s.cfg.Durable)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("nats: consumer %q of stream %q: %w", s.cfg.Durable, s.cfg.Stream, err)
	}
	if policy := c.CachedInfo().Config.AckPolicy; policy != jetstream.AckExplicitPolicy {
		return nil, fmt.Errorf("nats: consumer %q of stream %q has the ack policy %s; set it to explicit, or delete the consumer", s.cfg.Durable, s.cfg.Stream, policy)
	}
	if s.Ordered() == nil {
		if err := keepsOrder(c.CachedInfo().Config); err != nil {
			return nil, fmt.Errorf("nats: consumer %q of stream %q exists, and its %w, or delete the consumer", s.cfg.Durable, s.cfg.Stream, err)
		}
	}
	return c, nil
}

// signs returns how often a message that is being handled needs a progress signal.
func signs(c jetstream.Consumer) time.Duration {
	cfg := c.CachedInfo().Config
	wait := cfg.AckWait
	for _, step := range cfg.BackOff {
		wait = min(wait, step)
	}
	return max(wait/3, time.Millisecond)
}
