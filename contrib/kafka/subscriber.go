package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// ErrSubscribed says that the Subscriber reads already.
var ErrSubscribed = errors.New("kafka: the Subscriber reads already: make another one, with a client of its own")

// AttrReason is the attribute in which a dead letter says why it is one: deadletterreason.
const AttrReason = inbound.AttrReason

// SubscriberConfig says how a Subscriber reads. Its zero value works.
type SubscriberConfig struct {
	// Concurrency is how many records of one partition may be worked on at a time. With more than one their order is not
	// kept. Defaults to 1: each record of a partition is given out when the one before was acked.
	Concurrency int
	// Buffer is how many records of a partition are read ahead at most; what is acked behind one that is not counts. Then
	// no more of it is fetched until it has become half of that. Defaults to 1000.
	Buffer int
	// CommitInterval is how often offsets are committed. They are besides when partitions are given up, and for what is
	// acked after the end. Defaults to 1 s.
	CommitInterval time.Duration
	// NackBackoff is when nacked records are given out again where their error does not say. Defaults to 100 ms, doubled with
	// each nack up to 30 s, full jitter.
	NackBackoff message.Backoff
	// MaxDeliveries is after how many deliveries, by this Subscriber, a record that is nacked counts as refused for good.
	// Defaults to 0: it is delivered for ever.
	MaxDeliveries int
	// DeadLetter publishes what was refused for good (message.Permanent) and what cannot be decoded, with the attribute
	// deadletterreason; then it counts as acked. Defaults to none: such a record holds its partition, is tried again, and the
	// log says so.
	DeadLetter relay.Publisher
	// Unmarshal makes a message of a record. Defaults to CloudEvents of either mode, and to plain data, with the topic as type
	// and the key as subject and partition key. Where the message has no id it gets one of partition, offset and timestamp,
	// and where it has no source kafka:// and the topic.
	Unmarshal func(*kgo.Record) (*message.RawMessage, error)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Subscriber gives the records of a consumer group's partitions to a router: delivered at least once, the offset of a
// partition committed behind what was acked without a gap.
type Subscriber struct {
	cfg SubscriberConfig

	committing sync.Mutex // held from the look at what to commit to its end: who gives partitions up waits for it

	mu         sync.Mutex
	client     *kgo.Client // nil until Subscribe
	partitions map[place]*partition
	order      []*partition // whose turn it is
	wake       chan struct{}
	ended      bool
}

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// NewSubscriber makes a Subscriber, which needs a client of its own that is made with its Options.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	var errs []error
	refuse := func(bad bool, field, remedy string) {
		if bad {
			errs = append(errs, fmt.Errorf("kafka: SubscriberConfig.%s %s", field, remedy))
		}
	}
	refuse(cfg.Concurrency < 0, "Concurrency", "is negative: use 0 for 1")
	refuse(cfg.Buffer < 0, "Buffer", "is negative: use 0 for the default")
	refuse(cfg.CommitInterval < 0, "CommitInterval", "is negative: use 0 for the default")
	refuse(cfg.MaxDeliveries < 0, "MaxDeliveries", "is negative: use 0 for no bound")
	refuse(cfg.NackBackoff.Base < 0 || cfg.NackBackoff.Max < 0, "NackBackoff", "has a negative time: use 0 for the default")
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 1)
	cfg.Buffer = cmp.Or(cfg.Buffer, 1000)
	cfg.Buffer = max(cfg.Buffer, cfg.Concurrency)
	cfg.CommitInterval = cmp.Or(cfg.CommitInterval, time.Second)
	if cfg.Unmarshal == nil {
		cfg.Unmarshal = decode
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Subscriber{cfg: cfg, partitions: make(map[place]*partition), wake: make(chan struct{}, 1)}, errors.Join(errs...)
}

// Options are what the client must be made with, beside kgo.ConsumerGroup, kgo.ConsumeTopics and the addresses: no commits of
// its own, and no rebalance behind the Subscriber's back.
func (s *Subscriber) Options() []kgo.Opt {
	return []kgo.Opt{
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, gone map[string][]int32) { s.giveUp(ctx, gone, true) }),
		kgo.OnPartitionsLost(func(ctx context.Context, _ *kgo.Client, gone map[string][]int32) { s.giveUp(ctx, gone, false) }),
	}
}

// Subscribe reads until ctx ends, and closes the channel then. What is worked on may be acked afterwards, as long as the
// client is open: close it when the router has ended, so that others take over its partitions. What was given out and not
// acked comes again.
//
// Errors of brokers are logged, and reading goes on. It can be called once.
func (s *Subscriber) Subscribe(ctx context.Context, client *kgo.Client) (<-chan *message.RawMessage, error) {
	switch {
	case client == nil:
		return nil, errors.New("kafka: Subscribe needs a client: see Subscriber.Options")
	case client.OptValue(kgo.ConsumerGroup) == "":
		return nil, errors.New("kafka: the client is in no group: add kgo.ConsumerGroup")
	case client.OptValue(kgo.DisableAutoCommit) != true || client.OptValue(kgo.BlockRebalanceOnPoll) != true:
		return nil, errors.New("kafka: the client would commit by itself: make it with Subscriber.Options")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return nil, ErrSubscribed
	}
	s.client = client
	run := &subscription{Subscriber: s, detached: context.WithoutCancel(ctx), out: make(chan *message.RawMessage)}
	go run.run(ctx)
	return run.out, nil
}
