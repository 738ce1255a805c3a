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

// ErrSubscribed is returned if Subscribe was called before.
var ErrSubscribed = errors.New("kafka: the Subscriber reads already; create another one with a separate client")

// AttrReason is the attribute with the reason of a dead letter: deadletterreason.
const AttrReason = inbound.AttrReason

// SubscriberConfig configures a Subscriber. The zero value is usable.
type SubscriberConfig struct {
	// Concurrency is the maximum number of records of one partition that are handled at the same time. More than one does not
	// keep their order, and such records have no Position. Defaults to 1: each record of a partition is handed out after the previous one was acked.
	Concurrency int
	// Buffer is the maximum number of records of a partition that are read ahead, including records that were acked behind one
	// that was not. At this number, fetching pauses until half of it is left. Defaults to 1000.
	Buffer int
	// CommitInterval is how often offsets are committed. Offsets are also committed when partitions are revoked, and for records
	// that are acked after the end. Defaults to 1 s.
	CommitInterval time.Duration
	// NackBackoff is the delay after which a nacked record is handed out again if its error does not say. Defaults to 100 ms,
	// doubled with each nack up to 30 s, with full jitter.
	NackBackoff message.Backoff
	// MaxDeliveries is the number of deliveries by this Subscriber after which a nacked record counts as rejected for good.
	// Defaults to 0: there is no limit.
	MaxDeliveries int
	// DeadLetter publishes records with a permanent error (message.Permanent) and records that cannot be decoded, with the
	// attribute deadletterreason. Then they count as acked. Defaults to none: such a record blocks its partition, is retried, and
	// is logged.
	DeadLetter relay.Publisher
	// Unmarshal decodes a record. Defaults to CloudEvents in either mode, and to plain data with the topic as type and the key as
	// subject and partition key. A message without an id gets one from partition, offset and timestamp. A message without a
	// source gets kafka:// and the topic.
	Unmarshal func(*kgo.Record) (*message.RawMessage, error)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Subscriber passes the records of a consumer group's partitions to a router. It delivers at least once, and commits the offset
// of a partition up to the first record that was not acked.
type Subscriber struct {
	cfg SubscriberConfig

	committing sync.Mutex // held during a whole commit; revoking partitions waits for it

	mu         sync.Mutex
	clients    []*kgo.Client // created with Options; Subscribe needs one
	client     *kgo.Client   // nil until Subscribe
	partitions map[place]*partition
	order      []*partition // in the order of their turns
	wake       chan struct{}
	ended      bool
}

type place struct {
	topic     string
	partition int32
}

// NewSubscriber returns a Subscriber. It needs a separate client that is created with its Options.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	var errs []error
	refuse := func(bad bool, field, remedy string) {
		if bad {
			errs = append(errs, fmt.Errorf("kafka: SubscriberConfig.%s %s", field, remedy))
		}
	}
	refuse(cfg.Concurrency < 0, "Concurrency", "is negative; use 0 for 1")
	refuse(cfg.Buffer < 0, "Buffer", "is negative; use 0 for the default")
	refuse(cfg.CommitInterval < 0, "CommitInterval", "is negative; use 0 for the default")
	refuse(cfg.MaxDeliveries < 0, "MaxDeliveries", "is negative; use 0 for no bound")
	refuse(cfg.NackBackoff.Base < 0 || cfg.NackBackoff.Max < 0, "NackBackoff", "has a negative time; use 0 for the default")
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

// Options returns the options with which the client must be created, besides kgo.ConsumerGroup, kgo.ConsumeTopics and the
// addresses. They give the client to the Subscriber. They disable the client's own commits, and rebalances that the Subscriber
// does not control.
func (s *Subscriber) Options() []kgo.Opt {
	return []kgo.Opt{
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.WithHooks(created{s}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, gone map[string][]int32) { s.giveUp(ctx, gone, true) }),
		kgo.OnPartitionsLost(func(ctx context.Context, _ *kgo.Client, gone map[string][]int32) { s.giveUp(ctx, gone, false) }),
	}
}

// Subscribe reads until ctx ends, and then closes the channel. Records that are being handled can be acked as long as the client
// is open. Close the client when the router has ended, so that other members take over its partitions. Records that were handed
// out and not acked are delivered again.
//
// Errors of brokers are logged, and reading continues. Subscribe can be called once; later calls return ErrSubscribed.
func (s *Subscriber) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return nil, ErrSubscribed
	}
	client, err := s.onlyClient()
	if err != nil {
		return nil, err
	}
	s.client = client
	run := &subscription{Subscriber: s, detached: context.WithoutCancel(ctx), out: make(chan *message.RawMessage)}
	go run.run(ctx)
	return run.out, nil
}
