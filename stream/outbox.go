package stream

import (
	"cmp"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/outboxentry"
	"github.com/luatx/luatx/message"
)

// OutboxGroup is the consumer group of an outbox subscriber that names none.
const OutboxGroup = "outbox-forwarder"

// NewOutboxSubscriber makes a Subscriber of an outbox stream, whose messages are to be published elsewhere: ack each
// one when it has been, and nack it otherwise, as Publisher.Publish does. An Engine between the two needs AckForward:
// under AckOnSuccess Engine.Run returns a *message.WiringError. Group defaults to OutboxGroup and Unmarshal to
// UnmarshalOutbox. Entries that were published stay in the stream, unless DeleteAcked is set, or TrimAcked where other
// groups read it as well.
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

// Forwards reports whether the Subscriber reads an outbox, so that an ack of a message says that it has been published:
// whether NewOutboxSubscriber made it. See message.Engine.AddSubscriber.
func (s *Subscriber) Forwards() bool { return s.outbox }

// UnmarshalOutbox makes a message of an outbox entry: the field attributes is a JSON object or a MessagePack map of all
// attributes, data the encoded data; type, source and destination count where attributes lacks them. Errors wrap message.ErrDecode.
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
