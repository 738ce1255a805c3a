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
	// fetchTime is how long one request for messages stands, fetchBeat how often the server says that it does: after two
	// of those without a sign the request is made anew.
	fetchTime = 5 * time.Second
	fetchBeat = 500 * time.Millisecond
)

// SubscriberConfig says what a Subscriber reads, and how. Stream and Durable are required.
type SubscriberConfig struct {
	// Stream is the name of the stream.
	Stream string
	// Durable is the name of the consumer. Subscribers of one name share its messages.
	Durable string
	// Consumer is what the consumer is made with where there is none of that name; one that is there is used as it is.
	// Its Durable and its AckPolicy are those of a Subscriber. Defaults to everything in the stream, from its beginning.
	Consumer jetstream.ConsumerConfig
	// MaxInFlight is how many messages are given out and not yet settled at most; those that wait in the channel count.
	// Defaults to 100.
	MaxInFlight int
	// NackBackoff is when nacked messages come again where their error does not say. Defaults to 100 ms, doubled with
	// each delivery up to 30 s, full jitter.
	NackBackoff message.Backoff
	// MaxDeliveries is after how many deliveries a message that is nacked counts as refused for good. Defaults to 0: it is
	// delivered for ever, as far as the consumer's own MaxDeliver goes.
	MaxDeliveries int
	// DeadLetter publishes what was refused for good (message.Permanent) and what cannot be decoded, with the attribute
	// deadletterreason, before the consumer is told to forget it. Defaults to none: it is forgotten, with an advisory of the
	// server and a line in the log; the stream keeps it as long as its own limits say.
	DeadLetter relay.Publisher
	// NoHeartbeat gives no signs while a message is worked on. The consumer's AckWait must then exceed the time of the
	// slowest handler, waiting for a free worker included.
	NoHeartbeat bool
	// Unmarshal makes a message of one of JetStream's. Defaults to CloudEvents of either mode, and to plain data, whose type is
	// the subject. Where the message has no id it gets one of the stream's sequence and the time at which it was stored,
	// and where it has no source nats:// and the stream's name.
	Unmarshal func(jetstream.Msg) (*message.RawMessage, error)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// AttrReason is the attribute in which a dead letter says why it is one: deadletterreason.
const AttrReason = inbound.AttrReason

// Subscriber gives messages of a durable pull consumer to a router: delivered at least once, and never acknowledged before
// somebody has acked them.
type Subscriber struct {
	js  jetstream.JetStream
	cfg SubscriberConfig
}

// NewSubscriber makes a Subscriber. It does no I/O, and never closes the connection, which should reconnect for ever
// (nats.MaxReconnects(-1)).
func NewSubscriber(js jetstream.JetStream, cfg SubscriberConfig) (*Subscriber, error) {
	var errs []error
	refuse := func(bad bool, field, remedy string) {
		if bad {
			errs = append(errs, fmt.Errorf("nats: SubscriberConfig.%s %s", field, remedy))
		}
	}
	if js == nil {
		errs = append(errs, errors.New("nats: NewSubscriber needs a JetStream: see jetstream.New"))
	}
	refuse(cfg.Stream == "", "Stream", "is empty: name the stream")
	refuse(cfg.Durable == "", "Durable", "is empty: name the consumer, as the service is called")
	refuse(cfg.MaxInFlight < 0, "MaxInFlight", "is negative: use 0 for the default")
	refuse(cfg.MaxDeliveries < 0, "MaxDeliveries", "is negative: use 0 for no bound")
	refuse(cfg.NackBackoff.Base < 0 || cfg.NackBackoff.Max < 0, "NackBackoff", "has a negative time: use 0 for the default")
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

// Subscribe reads until ctx ends; then it gives back what nobody has taken, and closes the channel. Messages that are
// still worked on may be settled afterwards, while the connection is open: each has the consumer's AckWait left. What the
// server sent in the moment of the end comes again after that time.
//
// The error is that of finding or making the consumer. Later ones, of a server that is restarted or unwell, are logged, and
// reading goes on.
func (s *Subscriber) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	consumer, err := s.consumer(ctx)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s)
	go sub.run(ctx, consumer)
	return sub.out, nil
}

// consumer finds the consumer, or makes it.
func (s *Subscriber) consumer(ctx context.Context) (jetstream.Consumer, error) {
	c, err := s.js.Consumer(ctx, s.cfg.Stream, s.cfg.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = s.js.CreateConsumer(ctx, s.cfg.Stream, s.cfg.Consumer)
		if errors.Is(err, jetstream.ErrConsumerExists) { // somebody else was faster
			c, err = s.js.Consumer(ctx, s.cfg.Stream, s.cfg.Durable)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("nats: consumer %q of stream %q: %w", s.cfg.Durable, s.cfg.Stream, err)
	}
	if policy := c.CachedInfo().Config.AckPolicy; policy != jetstream.AckExplicitPolicy {
		return nil, fmt.Errorf("nats: consumer %q of stream %q has the ack policy %s: it must be explicit", s.cfg.Durable, s.cfg.Stream, policy)
	}
	return c, nil
}

// signs is how often a message that is worked on needs a sign.
func signs(c jetstream.Consumer) time.Duration {
	cfg := c.CachedInfo().Config
	wait := cfg.AckWait
	for _, step := range cfg.BackOff {
		wait = min(wait, step)
	}
	return max(wait/3, time.Millisecond)
}
