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

// PartitionKeys returns the keys of the streams that make up a partitioned stream: one for each tag of the keyspace, in
// order. It returns none if the keyspace has no partitions (luatx.OwnTags).
func PartitionKeys(keyspace luatx.Keyspace, stream string) []string {
	keys := keyspace.Tags()
	for i, tag := range keys {
		keys[i] = keyspace.TagKey(tag, stream)
	}
	return keys
}

// checkPartitions returns an error if a keyspace cannot hold a partitioned stream.
func checkPartitions(keyspace luatx.Keyspace, stream string) error {
	tags := keyspace.Tags()
	switch {
	case stream == "":
		return errors.New("stream: Stream is empty; name the partitioned stream")
	case len(tags) == 0 || len(tags) > slot.Count:
		return fmt.Errorf("stream: the keyspace has no partitions; use luatx.Partitions(n) with 1 to %d", slot.Count)
	}
	if key := keyspace.TagKey(tags[0], stream); slot.Of(key) != slot.OfTag(tags[0]) {
		return fmt.Errorf("stream: the key %q hides its tag; leave braces out of the keyspace's prefix", key)
	}
	return nil
}

// bySubject is the default aggregate of a message, the same as that of luatx.Config.
func bySubject(msg *message.RawMessage) (string, error) { return msg.Subject(), nil }

// NewPartitionedPublisher returns a Publisher that writes each message to the partition of its aggregate. That is the
// stream of PartitionKeys(keyspace, cfg.Stream) that shares the aggregate's tag, and so the slot of the aggregate's keys.
// Use the keyspace of the Transactor. A message without an aggregate fails with a permanent error. NewPartitionedPublisher
// returns an error if cfg is invalid or the keyspace has no partitions.
//
// Messages of an aggregate keep their order if they are sent one after another, or in one call of Send.
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
			return "", errors.New("it has no aggregate; set its subject, or PublisherConfig.Aggregate")
		}
		tag, err := keyspace.Tag(id)
		if err != nil {
			return "", err
		}
		return keyspace.TagKey(tag, stream), nil
	}
	return NewPublisher(client, cfg)
}

// PartitionedConfig configures a PartitionedSubscriber. Stream and Group are required.
type PartitionedConfig struct {
	// SubscriberConfig applies to every partition. Stream is the name of the partitioned stream, not a key. BatchSize is the
	// number of entries of a partition per read. MaxDeliveries lets a partition continue after an entry that cannot be
	// processed; the dead-letter stream of a partition is the DeadLetterKey of its key. With NoHeartbeat, a partition goes to
	// another member if one of its messages is not settled for MaxIdleTime. Leave Consumer, MaxInFlight, ClaimInterval,
	// DeadLetter and TrimAcked empty.
	SubscriberConfig
	// Aggregate returns the aggregate of a message. Consume handles messages of different aggregates concurrently, and those
	// of one aggregate one after another. Defaults to the subject, as luatx.Config.Aggregate.
	Aggregate func(*message.RawMessage) (string, error)
	// Lease is how long a partition stays with a member that sends no heartbeat. After a crash, other members continue within
	// Lease and a third of it. Every member should use the same value. Defaults to 10 s; at least 30 ms.
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
	f.check(c.Lease < 30*time.Millisecond, "Lease", "is below 30 ms; use 0 for the default")
	f.check(c.Consumer != "", "Consumer", "is set: members make names of their own, which no two may share")
	f.check(c.MaxInFlight != 0, "MaxInFlight", "is set: one message of each partition is in flight, or a batch")
	f.check(c.ClaimInterval != 0, "ClaimInterval", "is set: leases decide what is taken over: use Lease")
	f.check(c.DeadLetter != "", "DeadLetter", "is set: use MaxDeliveries; each partition has its DeadLetterKey")
	f.check(c.TrimAcked, "TrimAcked", "is set: use PublisherConfig.TrimAcked")
	return f.err()
}

// PartitionedSubscriber reads a partitioned stream as a member of a group. The members share the partitions evenly, by
// leases. Only one member reads a partition at a time, in order.
//
// A partition delivers nothing before its earlier deliveries are settled, and it delivers a nacked message again before
// anything behind it. A message that always fails therefore stops its partition, unless MaxDeliveries is set. A member that
// takes over a partition begins with the messages that its predecessor left unsettled. A predecessor that stalled and
// resumes reads nothing more, and its commits are fenced (luatx.Middleware). Its other effects count as a second delivery.
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
	waits   chan struct{} // a place for each read that may block at the same time
	active  atomic.Bool
	holding atomic.Int64
}

// NewPartitionedSubscriber returns a PartitionedSubscriber of the streams PartitionKeys(keyspace, cfg.Stream). Use the
// keyspace of the Transactor. It does no I/O and never closes the client. It returns an error if client is nil, cfg is
// invalid or the keyspace has no partitions.
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

// blockingReads returns the number of connections that may wait for new entries: half of the client's.
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

// Subscribe joins the group and delivers messages until ctx ends. Of each partition that the member holds, it delivers one
// message at a time, the next when the previous is settled. It creates groups and streams that do not exist.
//
// When ctx has ended, Subscribe waits up to ShutdownTimeout until the received messages are settled, releases the leases
// and closes the channel. It returns an error if it cannot join, or ErrSubscribed if an earlier subscription has not ended.
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
// Subscriber.Consume does, but separately for each partition. It handles consecutive messages of different aggregates
// concurrently in one script. Later messages wait until these are settled. A handler reads the effects of all earlier
// messages of the same aggregate.
//
// Consume returns nil when ctx has ended, the messages in flight are settled and the leases are released. Handlers may
// continue for ShutdownTimeout; then their contexts end. Consume returns an error if the Processor's Check fails or it
// cannot join, or ErrSubscribed.
func (s *PartitionedSubscriber) Consume(ctx context.Context, t *luatx.Transactor, process Processor) error {
	if err := checkConsume(t, process); err != nil {
		return err
	}
	m, err := s.join(ctx, link.Of(t).Processes, s.cfg.BatchSize, func(_ context.Context, p *partition, run []*item) { p.handle(t, process, run) })
	if err != nil {
		return unlessEnded(ctx, err)
	}
	m.run(ctx)
	return nil
}

// PartitionedStats counts what a PartitionedSubscriber has done since it was made.
type PartitionedStats struct {
	// SubscriberStats is the sum over the partitions. Redelivered counts deliveries after a nack or a takeover.
	SubscriberStats
	// Holding is the number of partitions that the member holds now.
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
