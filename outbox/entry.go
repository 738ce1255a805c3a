package outbox

import (
	"encoding/json"
	"fmt"

	"github.com/luatx/luatx/internal/msgpack"
	"github.com/luatx/luatx/message"
)

// JSON returns the fields of an entry: type, source and destination, for readers of the stream; data, unchanged or encoded by its
// content type; and attributes, a JSON object with all of them.
func JSON(event *message.Message) (map[string]any, error) {
	data, err := entryData(event)
	if err != nil {
		return nil, err
	}
	attributes, err := message.JSONMarshaler{}.Marshal(event.Attributes)
	if err != nil {
		return nil, err
	}
	values := map[string]any{
		"type":        event.Type(),
		"source":      event.Attributes.Source(),
		"destination": event.Destination(),
		"attributes":  attributes,
	}
	if data != nil {
		values["data"] = data
	}
	return values, nil
}

// MessagePack returns the fields of an entry: attributes, a MessagePack map of all of them, and data, unchanged or encoded by its
// content type. Times keep their nanoseconds but lose their zone. Errors wrap message.ErrEncode.
func MessagePack(event *message.Message) (map[string]any, error) {
	data, err := entryData(event)
	if err != nil {
		return nil, err
	}
	attributes, err := msgpack.AppendMap(nil, event.Attributes)
	if err != nil {
		return nil, fmt.Errorf("%w: attribute %w", message.ErrEncode, err)
	}
	values := map[string]any{"attributes": attributes}
	if data != nil {
		values["data"] = data
	}
	return values, nil
}

// entryData returns the data encoded by its content type, with the same bytes as in an event of scripted mode.
func entryData(event *message.Message) ([]byte, error) {
	switch data := event.Data.(type) {
	case nil:
		return nil, nil
	case []byte:
		return data, nil
	case json.RawMessage:
		return data, nil
	}
	body, err := Encode(message.New(event.Data, message.Attributes{
		message.AttrID: "data", message.AttrSource: "data", message.AttrType: "data",
		message.AttrDataContentType: event.Attributes.DataContentType(),
	}, nil))
	if err != nil {
		return nil, err
	}
	raw, err := Decode(body)
	if err != nil {
		return nil, err
	}
	return raw.Data, nil
}
