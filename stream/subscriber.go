package stream

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
)

// ErrSubscribed is the error if an earlier subscription of the Subscriber has not ended.
var ErrSubscribed = errors.New("stream: already subscribed")

// Subscriber reads a stream as a consumer of a group.
type Subscriber struct {
	client redis.UniversalClient
	cfg    SubscriberConfig
	active atomic.Bool
	counts counts
	outbox bool // reads an outbox stream
}

// NewSubscriber returns a Subscriber. It does no I/O and never closes the client. It returns an error if client is nil or
// cfg is invalid.
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

// Subscribe creates the group if it does not exist, and delivers messages until ctx ends. It closes the channel when it
// reads nothing any more, which takes up to BlockTimeout, or longer if the server does not reply. Messages that are still
// in the channel then go back to the group, where others may claim them at once. Received messages can still be acked.
//
// Subscribe returns an error if it cannot create the group, or ErrSubscribed if an earlier subscription has not ended.
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
	// Delivered is the number of delivered messages, including redeliveries.
	Delivered int64
	// Redelivered is the number of deliveries that followed a nack.
	Redelivered int64
	// Claimed is the number of entries that were claimed from other consumers, or from this one, after MaxIdleTime.
	Claimed int64
	// Malformed is the number of times that an entry could not be decoded.
	Malformed int64
	// Trimmed is the number of pending entries that were gone from the stream because it was trimmed before they were acked.
	Trimmed int64
	// AckFailed is the number of acks that could not be written. Their messages are delivered again.
	AckFailed int64
	// DeadLettered is the number of entries that were moved to the dead-letter stream.
	DeadLettered int64
	// Dismissed is the number of consumers that were removed because they had nothing pending and were idle for long.
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
