package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// PartitionKeys returns the streams that a partitioned stream is made of: one for each tag of the keyspace, in order;
// none where the keyspace has no partitions (luatx.OwnTags).
func PartitionKeys(keyspace luatx.Keyspace, stream string) []string {
	keys := keyspace.Tags()
	for i, tag := range keys {
		keys[i] = keyspace.TagKey(tag, stream)
	}
	return keys
}

// checkPartitions says why a keyspace cannot hold a partitioned stream.
func checkPartitions(keyspace luatx.Keyspace, stream string) error {
	tags := keyspace.Tags()
	switch {
	case stream == "":
		return errors.New("stream: Stream is empty: name the partitioned stream")
	case len(tags) == 0 || len(tags) > slot.Count:
		return fmt.Errorf("stream: the keyspace has no partitions: use luatx.Partitions(n) with 1 to %d", slot.Count)
	}
	if key := keyspace.TagKey(tags[0], stream); slot.Of(key) != slot.OfTag(tags[0]) {
		return fmt.Errorf("stream: the key %q hides its tag: leave braces out of the keyspace's prefix", key)
	}
	return nil
}

// bySubject is the aggregate of a message where nobody says otherwise, as it is luatx.Config's.
func bySubject(msg *message.RawMessage) (string, error) { return msg.Subject(), nil }

// NewPartitionedPublisher makes a Publisher that writes each message to the partition of its aggregate: of the streams
// PartitionKeys(keyspace, cfg.Stream), the one that shares the aggregate's tag, and so the slot of its keys. The keyspace
// is that of the Transactor. A message without an aggregate is refused.
//
// Messages of an aggregate keep their order where they are sent one after the other, or in one call of Send.
func NewPartitionedPublisher(client redis.UniversalClient, keyspace luatx.Keyspace, cfg PublisherConfig) (*Publisher, error) {
	if err := checkPartitions(keyspace, cfg.Stream); err != nil {
		return nil, err
	}
	if cfg.StreamFor != nil {
		return nil, errors.New("stream: PublisherConfig.StreamFor is set: a partitioned Publisher chooses by Aggregate")
	}
	stream, aggregate := cfg.Stream, cfg.Aggregate
	if aggregate == nil {
		aggregate = bySubject
	}
	cfg.Stream, cfg.Aggregate = "", nil
	cfg.StreamFor = func(msg *message.RawMessage) (string, error) {
		id, err := aggregate(msg)
		if err != nil {
			return "", err
		}
		if id == "" {
			return "", errors.New("it has no aggregate: set its subject, or PublisherConfig.Aggregate")
		}
		tag, err := keyspace.Tag(id)
		if err != nil {
			return "", err
		}
		return keyspace.TagKey(tag, stream), nil
	}
	return NewPublisher(client, cfg)
}

// PartitionedConfig says what a PartitionedSubscriber reads, and how. Stream and Group are required.
type PartitionedConfig struct {
	// SubscriberConfig is that of every partition. Stream names the partitioned stream, not a key; BatchSize is how many
	// entries of a partition are read at once; MaxDeliveries is what lets a partition go on behind an entry that cannot
	// be handled, each with a dead-letter stream of its own: DeadLetterKey of its key. With NoHeartbeat a partition of
	// which a message was not settled for MaxIdleTime goes to another member. Consumer, MaxInFlight, ClaimInterval,
	// DeadLetter and TrimAcked stay empty.
	SubscriberConfig
	// Aggregate names what a message is about: Consume handles messages of different aggregates at once, and those of
	// one after each other. Defaults to the subject, as luatx.Config.Aggregate.
	Aggregate func(*message.RawMessage) (string, error)
	// Lease is for how long a partition belongs to a member of which nothing is heard: after a crash others go on after
	// Lease and a third at most. At least 30 ms. Every member should have the same. Defaults to 10 s.
	Lease time.Duration
}

func (c PartitionedConfig) withDefaults() PartitionedConfig {
	c.Lease = cmp.Or(c.Lease, 10*time.Second)
	if c.Aggregate == nil {
		c.Aggregate = bySubject
	}
	return c
}

func (c PartitionedConfig) validate() error {
	f := flaws{config: "PartitionedConfig"}
	f.check(c.Lease < 30*time.Millisecond, "Lease", "is below 30 ms: use 0 for the default")
	f.check(c.Consumer != "", "Consumer", "is set: members make names of their own, which no two may share")
	f.check(c.MaxInFlight != 0, "MaxInFlight", "is set: one message of each partition is in flight, or a batch")
	f.check(c.ClaimInterval != 0, "ClaimInterval", "is set: leases decide what is taken over: use Lease")
	f.check(c.DeadLetter != "", "DeadLetter", "is set: use MaxDeliveries; each partition has its DeadLetterKey")
	f.check(c.TrimAcked, "TrimAcked", "is set: use PublisherConfig.TrimAcked")
	return f.err()
}

// PartitionedSubscriber reads a partitioned stream as a member of a group. The members share the partitions evenly, by
// leases: each partition is read by one of them at a time, in order.
//
// Nothing of a partition is given out before what was given out of it is settled, and a nacked message is given out
// again before anything behind it. Where it fails for ever its partition stands still, unless MaxDeliveries is set. A
// member that takes a partition over begins with what its predecessor left unsettled. A predecessor that stalled, and
// wakes up, reads nothing more, and its commits are fenced (luatx.Middleware); what it does in other ways counts as a
// second delivery.
type PartitionedSubscriber struct {
	client   redis.UniversalClient
	keyspace luatx.Keyspace
	cfg      PartitionedConfig
	subs     []*Subscriber // one a partition
	tags     []string      // by partition
	void     []string
	leases   []string
	// members is the key of the list of members; it lives in the slot of the first partition.
	members string
	waits   chan struct{} // a place for every read that may block at a time
	active  atomic.Bool
	holding atomic.Int64
}

// NewPartitionedSubscriber makes a PartitionedSubscriber of the streams PartitionKeys(keyspace, cfg.Stream). It does no
// I/O and never closes the client. The keyspace is that of the Transactor. The error says what is wrong with cfg.
func NewPartitionedSubscriber(client redis.UniversalClient, keyspace luatx.Keyspace, cfg PartitionedConfig) (*PartitionedSubscriber, error) {
	if err := checkPartitions(keyspace, cfg.Stream); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &PartitionedSubscriber{client: client, keyspace: keyspace, cfg: cfg, waits: make(chan struct{}, blockingReads(client))}
	for _, tag := range keyspace.Tags() {
		own := cfg.SubscriberConfig
		own.Stream = keyspace.TagKey(tag, cfg.Stream)
		sub, err := NewSubscriber(client, own)
		if err != nil {
			return nil, err
		}
		key := func(part string) string { return keyspace.TagKey(tag, cfg.Stream, cfg.Group, part) }
		s.tags = append(s.tags, tag)
		s.subs, s.void, s.leases = append(s.subs, sub), append(s.void, key("void")), append(s.leases, key("lease"))
		s.members = cmp.Or(s.members, key("members"))
	}
	s.cfg.SubscriberConfig = s.subs[0].cfg // with its defaults
	s.cfg.Stream = cfg.Stream
	return s, nil
}

// blockingReads is how many connections may wait for new entries: half of the client's.
func blockingReads(client redis.UniversalClient) int {
	size := 0
	switch c := client.(type) {
	case *redis.Client:
		size = c.Options().PoolSize
	case *redis.ClusterClient:
		size = c.Options().PoolSize
	}
	return max(size/2, 1)
}

// Subscribe joins the group and gives out messages until ctx ends, one at a time of each partition that it holds: the
// next one of a partition when the one before is settled. Groups and streams are made where they do not exist.
//
// The channel is closed when ctx has ended, what was taken from it is settled, for which there is ShutdownTimeout, and
// the leases are given back. The error is that of joining, or ErrSubscribed while an earlier subscription has not ended.
func (s *PartitionedSubscriber) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	out := make(chan *message.RawMessage)
	m, err := s.join(ctx, s.subs[0].processes(), 1, func(ctx context.Context, p *partition, run []*item) { p.offer(ctx, out, run) })
	if err != nil {
		return nil, err
	}
	go func() {
		m.run(ctx)
		close(out)
	}()
	return out, nil
}

// Ordered returns nil, because every message has a message.Position: Source is the partitioned stream, Partition the tag.
func (s *PartitionedSubscriber) Ordered() error { return nil }

// Consume joins the group, runs the Processor on messages and commits what their handlers recorded together, as
// Subscriber.Consume does, for each partition by itself: messages that follow one another and are about different
// aggregates are handled at once and share a script, and nothing behind them begins before they are settled. What a
// handler reads is what the messages before it, of the same aggregate, have left.
//
// It returns when ctx has ended, what was in flight is settled, for which handlers get ShutdownTimeout before their contexts end,
// and the leases are given back. The error is that of the Processor's Check or of joining, or ErrSubscribed.
func (s *PartitionedSubscriber) Consume(ctx context.Context, t *luatx.Transactor, process Processor) error {
	if err := checkConsume(t, process); err != nil {
		return err
	}
	m, err := s.join(ctx, link.Of(t).Processes, s.cfg.BatchSize, func(_ context.Context, p *partition, run []*item) { p.handle(t, process, run) })
	if err != nil {
		return err
	}
	m.run(ctx)
	return nil
}

// PartitionedStats counts what a PartitionedSubscriber has done since it was made.
type PartitionedStats struct {
	// SubscriberStats is the sum over the partitions; Redelivered counts what was nacked or taken over.
	SubscriberStats
	// Holding is how many partitions it holds now.
	Holding int
}

// Stats returns the counts.
func (s *PartitionedSubscriber) Stats() PartitionedStats {
	sum := PartitionedStats{Holding: int(s.holding.Load())}
	for _, sub := range s.subs {
		one := sub.Stats()
		sum.Delivered += one.Delivered
		sum.Redelivered += one.Redelivered
		sum.Malformed += one.Malformed
		sum.Trimmed += one.Trimmed
		sum.AckFailed += one.AckFailed
		sum.DeadLettered += one.DeadLettered
	}
	return sum
}
