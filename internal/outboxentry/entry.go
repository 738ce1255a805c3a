// Package outboxentry reads the fields of an entry of an outbox stream.
package outboxentry

import (
	"fmt"

	"github.com/luatx/luatx/internal/msgpack"
	"github.com/luatx/luatx/message"
)

// The fields of an entry.
const (
	fieldAttributes = "attributes" // all attributes, a JSON object or a MessagePack map
	fieldData       = "data"
)

// repeated are fields that people can read in the stream. Each counts if the attributes lack it.
var repeated = []string{message.AttrType, message.AttrSource, message.AttrDestination}

// Decode makes a message of the fields. Errors wrap message.ErrDecode.
func Decode(values map[string]any) (*message.RawMessage, error) {
	msg := message.NewRaw(nil, nil, nil)
	if attributes := fieldBytes(values, fieldAttributes); attributes != nil {
		if err := unmarshalAttributes(msg, attributes); err != nil {
			return nil, fmt.Errorf("field %q: %w", fieldAttributes, err)
		}
	}
	for _, name := range repeated {
		if v := string(fieldBytes(values, name)); v != "" && msg.Attributes[name] == nil {
			msg.Attributes[name] = v
		}
	}
	if msg.Type() == "" {
		return nil, fmt.Errorf("%w: the event has no type", message.ErrDecode)
	}
	msg.Data = fieldBytes(values, fieldData)
	return msg, nil
}

// fieldBytes returns the value of a field, or nil if there is none.
func fieldBytes(values map[string]any, name string) []byte {
	switch v := values[name].(type) {
	case nil:
		return nil
	case []byte:
		return v
	case string:
		return []byte(v)
	default:
		return fmt.Append(nil, v)
	}
}

// unmarshalAttributes distinguishes the encodings by the first byte: no MessagePack map begins as JSON does.
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
