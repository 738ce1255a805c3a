package nats

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/message"
)

// Ordered returns nil if the Subscriber keeps the order of the consumer's messages and skips none, as inbox.Position needs. The
// error names the field to change.
func (s *Subscriber) Ordered() error {
	switch {
	case s.cfg.MaxInFlight != 1:
		return fmt.Errorf("nats: SubscriberConfig.MaxInFlight is %d and does not keep the order; use 1, and Consumer.MaxAckPending 1", s.cfg.MaxInFlight)
	case s.cfg.MaxDeliveries > 0:
		return fmt.Errorf("nats: SubscriberConfig.MaxDeliveries is %d and skips messages without a commit; use 0, and PositionConfig.MaxAttempts to park them", s.cfg.MaxDeliveries)
	}
	if err := keepsOrder(s.cfg.Consumer); err != nil {
		return fmt.Errorf("nats: SubscriberConfig.Consumer.%w", err)
	}
	return nil
}

// keepsOrder returns an error if a consumer with this config delivers a message before the previous one was acked, or may skip one.
func keepsOrder(cfg jetstream.ConsumerConfig) error {
	switch {
	case cfg.MaxAckPending != 1:
		return fmt.Errorf("MaxAckPending is %d and does not keep the order; use 1", cfg.MaxAckPending)
	case cfg.MaxDeliver > 0:
		return fmt.Errorf("MaxDeliver is %d and skips messages without a commit; use 0, and PositionConfig.MaxAttempts to park them", cfg.MaxDeliver)
	}
	switch cfg.DeliverPolicy {
	case jetstream.DeliverAllPolicy, jetstream.DeliverByStartSequencePolicy, jetstream.DeliverByStartTimePolicy:
		return nil
	default:
		return fmt.Errorf("DeliverPolicy is %s and skips messages if the consumer is lost; use DeliverAllPolicy", cfg.DeliverPolicy)
	}
}

// position returns where a message stands in its stream. It is empty if the Subscriber does not keep order.
//
// The creation time of the stream is looked up again if the consumer has counted its deliveries from the beginning, because its
// stream may have been created again.
func (s *subscription) position(ctx context.Context, consumer jetstream.Consumer, meta *jetstream.MsgMetadata) (message.Position, error) {
	if s.Ordered() != nil {
		return message.Position{}, nil
	}
	if s.epoch == "" || meta.Sequence.Consumer <= s.delivered {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		stream, err := s.js.Stream(ctx, s.cfg.Stream)
		if err != nil {
			return message.Position{}, fmt.Errorf("nats: look up stream %q: %w", s.cfg.Stream, err)
		}
		s.epoch = stream.CachedInfo().Created.UTC().Format(time.RFC3339Nano)
	}
	s.delivered = meta.Sequence.Consumer
	cfg := consumer.CachedInfo().Config
	return message.Position{
		Source: sourceOf(meta.Stream), Partition: cmp.Or(cfg.FilterSubject, strings.Join(cfg.FilterSubjects, " ")),
		Offset: fmt.Sprintf("%020d", meta.Sequence.Stream), Epoch: s.epoch, Tenure: s.tenure,
	}, nil
}

func sourceOf(stream string) string { return "nats://" + stream }
