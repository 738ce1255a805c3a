package outbox

import (
	"encoding/json"
	"fmt"

	"github.com/luatx/luatx/internal/msgpack"
	"github.com/luatx/luatx/message"
)

// JSON makes the fields of an entry: type, source and destination, for those who look into the stream; data, as it is
// or in its content type; and attributes, a JSON object of all of them.
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

// MessagePack makes the fields of an entry: attributes, a MessagePack map of all of them, and data, as it is or in its
// content type. Times keep their nanoseconds and lose their zone. Errors wrap message.ErrEncode.
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

// entryData is the data as its content type says, the same bytes that an event of the scripted mode carries.
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
