package stream

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/message"
)

// The fields of an entry.
const (
	attributePrefix  = "ce_"
	fieldVersion     = attributePrefix + message.AttrSpecVersion
	fieldContentType = "content-type"
	fieldData        = "data"
)

const contentTypeStructured = "application/cloudevents+json"

// Binary encodes a message in the binary mode of CloudEvents, as a list of fields and values: every attribute a field
// with the prefix ce_, in the order of their names, the content type content-type, the data data, byte for byte. Message
// data that is nil gives no field. Attributes that are neither text nor a time come back as text. Errors wrap
// message.ErrEncode.
func Binary(msg *message.RawMessage) ([]any, error) {
	return appendBinary(make([]any, 0, binarySize(msg)), msg)
}

// binarySize is the most fields and values that appendBinary appends.
func binarySize(msg *message.RawMessage) int { return 2*len(msg.Attributes) + 4 }

func appendBinary(fields []any, msg *message.RawMessage) ([]any, error) {
	version := msg.SpecVersion()
	if version == "" {
		version = message.SpecVersion
	}
	fields = append(fields, fieldVersion, version)
	var few [16]string
	names := few[:0]
	for name, value := range msg.Attributes {
		if name != message.AttrSpecVersion && value != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		value := msg.Attributes[name]
		if name == "" {
			return nil, fmt.Errorf("%w: an attribute has no name", message.ErrEncode)
		}
		text, err := attributeText(name, value)
		if err != nil {
			return nil, fmt.Errorf("%w: attribute %q: %w", message.ErrEncode, name, err)
		}
		if sent, ok := value.(string); !ok || sent != text {
			value = text
		}
		fields = append(fields, fieldName(name), value) // as they are, they need no copy
	}
	if msg.Data != nil {
		fields = append(fields, fieldData, msg.Data)
	}
	return fields, nil
}

// fieldNames are the fields of attributes that many messages have, ready to be sent.
var fieldNames = map[string]any{
	message.AttrDataContentType: fieldContentType,
	message.AttrID:              attributePrefix + message.AttrID,
	message.AttrSource:          attributePrefix + message.AttrSource,
	message.AttrType:            attributePrefix + message.AttrType,
	message.AttrSubject:         attributePrefix + message.AttrSubject,
	message.AttrTime:            attributePrefix + message.AttrTime,
	message.AttrCorrelationID:   attributePrefix + message.AttrCorrelationID,
	message.AttrDestination:     attributePrefix + message.AttrDestination,
}

func fieldName(attribute string) any {
	if name, ok := fieldNames[attribute]; ok {
		return name
	}
	return attributePrefix + attribute
}

// Structured encodes a message in the structured mode of CloudEvents: the field content-type, and all of the message as
// JSON in data. Errors wrap message.ErrEncode.
func Structured(msg *message.RawMessage) ([]any, error) {
	event, err := msg.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return []any{fieldContentType, contentTypeStructured, fieldData, event}, nil
}

// Unmarshal makes a message of an entry's fields, by what it finds first:
//
//  1. a field ce_specversion: binary mode;
//  2. a content-type of application/cloudevents+json: structured mode;
//  3. a field _watermill_message_uuid: see UnmarshalWatermill;
//  4. the fields data and metadata and no others, metadata being a JSON object of texts: see UnmarshalDapr;
//  5. anything else is plain: its data is the field data, or where there is none a JSON object of all fields; the other
//     fields are attributes as well, where their names are such as CloudEvents allows and their values fit.
//
// An entry of Dapr without metadata is plain: set SubscriberConfig.Unmarshal to UnmarshalDapr. Errors wrap
// message.ErrDecode.
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
		if _, isText := value.(string); !isText || isTime(name) { // text stays as it is
			var err error
			if value, err = attributeValue(name, fieldText(values, field)); err != nil {
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

// unmarshalPlain leaves out what does not fit as an attribute: it says nothing about the message.
func unmarshalPlain(values map[string]any) (*message.RawMessage, error) {
	attrs := message.Attributes{message.AttrSpecVersion: message.SpecVersion}
	for name := range values {
		if !isAttributeName(name) || name == message.AttrSpecVersion {
			continue
		}
		if v, err := attributeValue(name, fieldText(values, name)); err == nil {
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

// isAttributeName holds to the names that CloudEvents allows; data is the one that is none of them.
func isAttributeName(name string) bool {
	return name != "" && name != fieldData && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// attributeText writes a value in the canonical form that CloudEvents gives its type.
func attributeText(name string, value any) (string, error) {
	if t, ok := value.(time.Time); ok {
		text, err := t.MarshalText()
		return string(text), err
	}
	if isTime(name) {
		text, ok := value.(string)
		if !ok {
			return "", fmt.Errorf("is a %T, want a time", value)
		}
		_, err := attributeValue(name, text)
		return text, err
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case []byte:
		return base64.StdEncoding.EncodeToString(v), nil
	case json.RawMessage:
		return string(v), nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return fmt.Sprint(v), nil
	case fmt.Stringer:
		return v.String(), nil
	default:
		return "", fmt.Errorf("is a %T, want a text, number, boolean, time or bytes", value)
	}
}

func isTime(attribute string) bool {
	return attribute == message.AttrTime || attribute == message.AttrExpiryTime
}

func attributeValue(name, text string) (any, error) {
	if !isTime(name) {
		return text, nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return nil, errors.New("is no RFC 3339 time")
	}
	return t, nil
}
