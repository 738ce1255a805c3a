package stream

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
)

// ErrSubscribed says that the Subscriber has a subscription that has not ended.
var ErrSubscribed = errors.New("stream: already subscribed")

// Subscriber reads a stream as a consumer of a group.
type Subscriber struct {
	client redis.UniversalClient
	cfg    SubscriberConfig
	active atomic.Bool
	counts counts
	outbox bool // it reads an outbox stream
}

// NewSubscriber makes a Subscriber; it does no I/O and never closes the client. The error says what is wrong with cfg.
func NewSubscriber(client redis.UniversalClient, cfg SubscriberConfig) (*Subscriber, error) {
	if client == nil {
		return nil, errors.New("stream: the client of the Subscriber is nil")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Subscriber{client: client, cfg: cfg}, nil
}

// Subscribe makes the group where it does not exist and gives out messages until ctx ends. The channel is closed
// when nothing is read any more, which takes up to BlockTimeout, longer where the server is silent. Messages that
// nobody has taken from the channel by then go back to the group, for others to claim at once; those that were taken
// can still be acked.
//
// The error is that of making the group, or ErrSubscribed while an earlier subscription has not ended.
func (s *Subscriber) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	if !s.active.CompareAndSwap(false, true) {
		return nil, ErrSubscribed
	}
	sub, err := newSubscription(ctx, s, s.cfg.MaxInFlight)
	if err != nil {
		s.active.Store(false)
		return nil, err
	}
	go sub.run(ctx, s.processes(), newReader(sub).loop)
	return sub.out, nil
}

// SubscriberStats counts what a Subscriber has done since it was made.
type SubscriberStats struct {
	// Delivered is how many messages were given out, redeliveries included.
	Delivered int64
	// Redelivered is how many of them followed a nack.
	Redelivered int64
	// Claimed is how many entries were taken over from other consumers, or from this one, after MaxIdleTime.
	Claimed int64
	// Malformed is how often an entry could not be decoded.
	Malformed int64
	// Trimmed is how many pending entries were found gone from the stream: lost to trimming before they were acked.
	Trimmed int64
	// AckFailed is how often an ack could not be written; such a message will be given out again.
	AckFailed int64
	// DeadLettered is how many entries went to the dead-letter stream.
	DeadLettered int64
	// Dismissed is how many consumers were removed because they had nothing pending and were idle for long.
	Dismissed int64
}

type counts struct {
	delivered, redelivered, claimed, malformed, trimmed, ackFailed, deadLettered, dismissed atomic.Int64
}

// Stats returns the counts.
func (s *Subscriber) Stats() SubscriberStats {
	return SubscriberStats{
		Delivered: s.counts.delivered.Load(), Redelivered: s.counts.redelivered.Load(), Claimed: s.counts.claimed.Load(),
		Malformed: s.counts.malformed.Load(), Trimmed: s.counts.trimmed.Load(), AckFailed: s.counts.ackFailed.Load(),
		DeadLettered: s.counts.deadLettered.Load(), Dismissed: s.counts.dismissed.Load(),
	}
}
