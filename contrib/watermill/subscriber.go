package watermill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// SubscriberConfig configures a Subscriber. Group is required.
type SubscriberConfig struct {
	// Group is the consumer group of every topic.
	Group string
	// Key returns the stream of a topic. Defaults to the topic itself.
	Key func(topic string) string
	// BatchSize is the maximum number of entries in a read. Messages are handed out one after the other in any case. Defaults to
	// 10.
	BatchSize int
	// BlockTimeout, ClaimInterval and MaxIdleTime are those of stream.SubscriberConfig.
	BlockTimeout, ClaimInterval, MaxIdleTime time.Duration
	// MaxNacks is how often a message may be nacked before it becomes a dead letter in stream.DeadLetterKey of its stream. A
	// delivery that ends the process counts, too. Defaults to 0: the message is delivered again without a limit.
	MaxNacks int
	// NackBackoff is how long a nacked message waits, and the messages behind it. Defaults to 100 ms, doubled with each nack up
	// to 30 s, with full jitter.
	NackBackoff message.Backoff
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Subscriber reads Redis Streams as topics of Watermill. It implements Watermill's message.Subscriber and SubscribeInitializer. A
// subscription hands out messages one after the other in their order, each after the previous one was acked. A nacked message is
// handed out again before those behind it.
type Subscriber struct {
	client redis.UniversalClient
	cfg    SubscriberConfig

	open    context.Context // ends with Close
	close   context.CancelFunc
	mu      sync.Mutex // held while a subscription begins, and by Close
	running sync.WaitGroup
}

// NewSubscriber returns a Subscriber. It does no I/O, and never closes the client, whose pool needs a connection for each
// subscription.
func NewSubscriber(client redis.UniversalClient, cfg SubscriberConfig) (*Subscriber, error) {
	if cfg.MaxNacks < 0 {
		return nil, fmt.Errorf("watermill: SubscriberConfig.MaxNacks is %d; use 0 for no limit", cfg.MaxNacks)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	s := &Subscriber{client: client, cfg: cfg}
	s.open, s.close = context.WithCancel(context.Background())
	_, err := s.subscriber("topic") // reports an invalid config now
	return s, err
}

func (s *Subscriber) subscriber(topic string) (*stream.Subscriber, error) {
	cfg := stream.SubscriberConfig{
		Stream: key(s.cfg.Key, topic), Group: s.cfg.Group, BatchSize: s.cfg.BatchSize, BlockTimeout: s.cfg.BlockTimeout,
		ClaimInterval: s.cfg.ClaimInterval, MaxIdleTime: s.cfg.MaxIdleTime, MaxDeliveries: s.cfg.MaxNacks, Logger: s.cfg.Logger,
	}
	return stream.NewSubscriber(s.client, cfg)
}

// SubscribeInitialize creates the group of a topic at the beginning of its stream, so that it misses no message that is published
// before Subscribe. It returns nil if the group exists.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	err := s.client.XGroupCreateMkStream(context.Background(), key(s.cfg.Key, topic), s.cfg.Group, "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("watermill: group of %q: %w", topic, err)
	}
	return nil
}

// Subscribe implements Watermill's Subscriber. The channel is closed after ctx has ended or the Subscriber was closed.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *wm.Message, error) {
	source, err := s.subscriber(topic)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.Err() != nil {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(s.open, cancel)
	stop := func() { unlink(); cancel() }
	in, err := source.Subscribe(ctx)
	if err != nil {
		stop()
		return nil, err
	}
	out := make(chan *wm.Message)
	s.running.Go(func() {
		defer close(out)
		s.forward(ctx, in, out)
		stop()
		for raw := range in { // returns messages that were read meanwhile
			raw.Nack(errEnded)
		}
	})
	return out, nil
}

var (
	errEnded  = errors.New("watermill: the subscription has ended")
	errNacked = errors.New("watermill: the handler nacked the message")
)

func (s *Subscriber) forward(ctx context.Context, in <-chan *message.RawMessage, out chan<- *wm.Message) {
	for {
		select {
		case <-ctx.Done():
			return
		case raw, ok := <-in:
			if !ok || !s.deliver(ctx, raw, out) {
				return
			}
		}
	}
}

// deliver hands a message out until it is settled. It returns false if the subscription has ended.
func (s *Subscriber) deliver(ctx context.Context, raw *message.RawMessage, out chan<- *wm.Message) bool {
	for nacks := 1; ; nacks++ {
		acked, ended := s.give(ctx, raw, out)
		switch {
		case acked:
			raw.Ack() // a commit may have done so already
			return !ended
		case ended:
			raw.Nack(errEnded)
			return false
		case settled(raw):
			return true
		case s.cfg.MaxNacks > 0 && nacks >= s.cfg.MaxNacks:
			raw.Nack(message.Permanent(errNacked))
			return true
		}
		if !sleep.For(ctx, s.cfg.NackBackoff.Delay(nacks)) {
			raw.Nack(errEnded)
			return false
		}
	}
}

// settled reports whether the message was settled without Watermill, by a commit or because another consumer has it.
func settled(raw *message.RawMessage) bool {
	select {
	case <-raw.Settled():
		return true
	default:
		return false
	}
}

// give hands a message out once.
func (s *Subscriber) give(ctx context.Context, raw *message.RawMessage, out chan<- *wm.Message) (acked, ended bool) {
	msg, err := FromRaw(raw)
	if err != nil {
		raw.Nack(err)
		return false, false
	}
	own, cancel := context.WithCancel(context.WithValue(ctx, rawKey{}, raw))
	defer cancel()
	msg.SetContext(own)
	select {
	case out <- msg:
	case <-ctx.Done():
		return false, true
	}
	select {
	case <-msg.Acked():
		return true, false
	case <-msg.Nacked():
		return false, false
	case <-ctx.Done():
	}
	select { // the ack may have arrived at the same moment
	case <-msg.Acked():
		return true, true
	default:
		return false, true
	}
}

type rawKey struct{}

// rawOf returns the message from which a Subscriber created a Watermill message, and false for other messages.
func rawOf(msg *wm.Message) (*message.RawMessage, bool) {
	raw, ok := msg.Context().Value(rawKey{}).(*message.RawMessage)
	return raw, ok
}

// Close ends all subscriptions and waits until their channels are closed. Another subscription of the group gets the messages
// that were handed out and not acked.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.running.Wait()
	return nil
}
