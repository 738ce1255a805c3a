package stream

import (
	"fmt"
	"mime"
	"strings"

	"github.com/luatx/luatx/internal/streamentry"
	"github.com/luatx/luatx/message"
)

// The fields of an entry.
const (
	attributePrefix  = streamentry.AttributePrefix
	fieldVersion     = streamentry.FieldVersion
	fieldContentType = streamentry.FieldContentType
	fieldData        = streamentry.FieldData
)

const contentTypeStructured = "application/cloudevents+json"

// Binary encodes a message in the binary mode of CloudEvents, as a list of fields and values. Each attribute is a field
// with the prefix ce_, in the order of the names. The field content-type has the content type, and the field data has the
// unchanged data. If the message has no data, there is no such field. Attributes that are neither text nor a time become
// text. Errors wrap message.ErrEncode.
func Binary(msg *message.RawMessage) ([]any, error) {
	return appendBinary(make([]any, 0, binarySize(msg)), msg)
}

func binarySize(msg *message.RawMessage) int { return streamentry.BinarySize(msg) }

func appendBinary(fields []any, msg *message.RawMessage) ([]any, error) {
	return streamentry.AppendBinary(fields, msg)
}

// Structured encodes a message in the structured mode of CloudEvents. The field content-type has the content type, and the
// field data has the whole message as JSON. Errors wrap message.ErrEncode.
func Structured(msg *message.RawMessage) ([]any, error) {
	event, err := msg.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return []any{fieldContentType, contentTypeStructured, fieldData, event}, nil
}

// Unmarshal decodes the fields of an entry into a message. The first match decides the format:
//
//  1. a field ce_specversion: binary mode.
//  2. a content-type of application/cloudevents+json: structured mode.
//  3. a field _watermill_message_uuid: see UnmarshalWatermill.
//  4. only the fields data and metadata, where metadata is a JSON object of strings: see UnmarshalDapr.
//  5. anything else is plain. The data is the field data, or a JSON object of all fields if there is none. The other
//     fields become attributes too, if CloudEvents allow their names and their values are valid.
//
// An entry of Dapr without metadata counts as plain, so set SubscriberConfig.Unmarshal to UnmarshalDapr for such entries.
// Errors wrap message.ErrDecode.
func Unmarshal(id string, values map[string]any) (*message.RawMessage, error) {
	switch {
	case hasField(values, fieldVersion) || isCloudEvents(values):
	case hasField(values, fieldWatermillID):
		return UnmarshalWatermill(id, values)
	case isDapr(values):
		return UnmarshalDapr(id, values)
	}
	msg, err := unmarshal(values)
	if err != nil {
		return nil, fmt.Errorf("stream: entry %s: %w", id, err)
	}
	if msg.ID() == "" {
		msg.Attributes[message.AttrID] = id
	}
	return msg, nil
}

func hasField(values map[string]any, name string) bool {
	_, ok := values[name]
	return ok
}

func isCloudEvents(values map[string]any) bool {
	return strings.HasPrefix(strings.ToLower(fieldText(values, fieldContentType)), "application/cloudevents")
}

func unmarshal(values map[string]any) (*message.RawMessage, error) {
	if hasField(values, fieldVersion) {
		return unmarshalBinary(values)
	}
	media, _, err := mime.ParseMediaType(fieldText(values, fieldContentType))
	switch {
	case err == nil && media == contentTypeStructured:
		return unmarshalStructured(values)
	case err == nil && strings.HasPrefix(media, "application/cloudevents"):
		return nil, fmt.Errorf("%w: content type %s is not supported, want %s", message.ErrDecode, media, contentTypeStructured)
	default:
		return unmarshalPlain(values)
	}
}

func unmarshalBinary(values map[string]any) (*message.RawMessage, error) {
	if v := fieldText(values, fieldVersion); !strings.HasPrefix(v, "1.") {
		return nil, fmt.Errorf("%w: %s %q is not supported, want %q", message.ErrDecode, fieldVersion, v, message.SpecVersion)
	}
	attrs := make(message.Attributes, len(values))
	for field, value := range values {
		name, ok := strings.CutPrefix(field, attributePrefix)
		if !ok || name == message.AttrDataContentType {
			continue
		}
		if _, isText := value.(string); !isText || streamentry.IsTime(name) { // text needs no conversion
			var err error
			if value, err = streamentry.Value(name, fieldText(values, field)); err != nil {
				return nil, fmt.Errorf("%w: field %q: %w", message.ErrDecode, field, err)
			}
		}
		attrs[name] = value
	}
	if _, ok := values[fieldContentType]; ok {
		attrs[message.AttrDataContentType] = fieldText(values, fieldContentType)
	}
	return message.NewRaw(fieldBytes(values, fieldData), attrs, nil), nil
}

func unmarshalStructured(values map[string]any) (*message.RawMessage, error) {
	msg := message.NewRaw(nil, nil, nil)
	if err := msg.UnmarshalJSON(fieldBytes(values, fieldData)); err != nil {
		return nil, err
	}
	return msg, nil
}

// unmarshalPlain leaves out invalid attributes, because fields of other formats need not be attributes.
func unmarshalPlain(values map[string]any) (*message.RawMessage, error) {
	attrs := message.Attributes{message.AttrSpecVersion: message.SpecVersion}
	for name := range values {
		if !isAttributeName(name) || name == message.AttrSpecVersion {
			continue
		}
		if v, err := streamentry.Value(name, fieldText(values, name)); err == nil {
			attrs[name] = v
		}
	}
	if _, ok := values[fieldData]; ok {
		if v := fieldText(values, fieldContentType); v != "" {
			attrs[message.AttrDataContentType] = v
		}
		return message.NewRaw(fieldBytes(values, fieldData), attrs, nil), nil
	}
	data, err := fieldsJSON(values)
	if err != nil {
		return nil, err
	}
	attrs[message.AttrDataContentType] = message.ContentTypeJSON
	return message.NewRaw(data, attrs, nil), nil
}

// isAttributeName reports whether CloudEvents allow the name of an attribute. They reserve the name data.
func isAttributeName(name string) bool {
	return name != "" && name != fieldData && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}
