package stream

import (
	"cmp"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/outboxentry"
	"github.com/luatx/luatx/message"
)

// OutboxGroup is the default consumer group of an outbox subscriber.
const OutboxGroup = "outbox-forwarder"

// NewOutboxSubscriber returns a Subscriber of an outbox stream, whose messages are to be published elsewhere. Ack a message
// when it has been published and nack it otherwise, as Publisher.Publish does. An Engine in between needs AckForward: under
// AckOnSuccess, Engine.Run returns a *message.WiringError. Group defaults to OutboxGroup and Unmarshal to UnmarshalOutbox.
// Published entries stay in the stream unless DeleteAcked is set, or TrimAcked if other groups read the stream too.
//
// NewOutboxSubscriber does no I/O. It returns an error if client is nil or cfg is invalid.
func NewOutboxSubscriber(client redis.UniversalClient, cfg SubscriberConfig) (*Subscriber, error) {
	cfg.Group = cmp.Or(cfg.Group, OutboxGroup)
	if cfg.Unmarshal == nil {
		cfg.Unmarshal = UnmarshalOutbox
	}
	s, err := NewSubscriber(client, cfg)
	if err != nil {
		return nil, err
	}
	s.outbox = true
	return s, nil
}

// Forwards reports whether NewOutboxSubscriber made the Subscriber, so that acking a message means that it has been
// published. See message.Engine.AddSubscriber.
func (s *Subscriber) Forwards() bool { return s.outbox }

// UnmarshalOutbox decodes an outbox entry. The field attributes is a JSON object or a MessagePack map of all attributes,
// and data the encoded data. The fields type, source and destination count if attributes lacks them. Errors wrap
// message.ErrDecode.
func UnmarshalOutbox(id string, values map[string]any) (*message.RawMessage, error) {
	msg, err := outboxentry.Decode(values)
	if err != nil {
		return nil, fmt.Errorf("stream: outbox entry %s: %w", id, err)
	}
	if msg.ID() == "" {
		msg.Attributes[message.AttrID] = id
	}
	return msg, nil
}
