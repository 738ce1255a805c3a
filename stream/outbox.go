package stream

import (
	"cmp"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/msgpack"
	"github.com/luatx/luatx/message"
)

// OutboxGroup is the consumer group of an outbox subscriber that names none.
const OutboxGroup = "outbox-forwarder"

// fieldAttributes holds all attributes of an outbox entry as a JSON object.
const fieldAttributes = "attributes"

// outboxFields are repeated beside the attributes, for those who look into the stream.
var outboxFields = []string{message.AttrType, message.AttrSource, message.AttrDestination}

// NewOutboxSubscriber makes a Subscriber of an outbox stream, whose messages are to be published elsewhere: ack each
// one when it has been, and nack it otherwise, as Publisher.Publish does. Group defaults to OutboxGroup and Unmarshal to
// UnmarshalOutbox. Entries that were published stay in the stream, unless DeleteAcked is set, or TrimAcked where other
// groups read it as well.
func NewOutboxSubscriber(client redis.UniversalClient, cfg SubscriberConfig) (*Subscriber, error) {
	cfg.Group = cmp.Or(cfg.Group, OutboxGroup)
	if cfg.Unmarshal == nil {
		cfg.Unmarshal = UnmarshalOutbox
	}
	return NewSubscriber(client, cfg)
}

// UnmarshalOutbox makes a message of an outbox entry: the field attributes is a JSON object or a MessagePack map of all
// attributes, data the encoded data; type, source and destination count where attributes lacks them. Errors wrap message.ErrDecode.
func UnmarshalOutbox(id string, values map[string]any) (*message.RawMessage, error) {
	msg := message.NewRaw(nil, nil, nil)
	if attributes := fieldBytes(values, fieldAttributes); attributes != nil {
		if err := unmarshalAttributes(msg, attributes); err != nil {
			return nil, fmt.Errorf("stream: outbox entry %s: field %q: %w", id, fieldAttributes, err)
		}
	}
	for _, name := range outboxFields {
		if v := fieldText(values, name); v != "" && msg.Attributes[name] == nil {
			msg.Attributes[name] = v
		}
	}
	if msg.Type() == "" {
		return nil, fmt.Errorf("stream: outbox entry %s: %w: it has no type", id, message.ErrDecode)
	}
	if msg.ID() == "" {
		msg.Attributes[message.AttrID] = id
	}
	msg.Data = fieldBytes(values, fieldData)
	return msg, nil
}

// unmarshalAttributes tells the two encodings apart by the first byte: no MessagePack map begins as JSON does.
func unmarshalAttributes(msg *message.RawMessage, text []byte) error {
	if len(text) == 0 || text[0] < 0x80 {
		return msg.UnmarshalJSON(text)
	}
	attributes, err := msgpack.ReadMap(text)
	if err != nil {
		return fmt.Errorf("%w: %w", message.ErrDecode, err)
	}
	msg.Attributes = attributes
	return nil
}
