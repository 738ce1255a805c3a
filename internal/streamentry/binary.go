// Package streamentry writes the entries of Redis Streams in the binary mode of CloudEvents.
package streamentry

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/luatx/luatx/message"
)

// The fields of an entry.
const (
	AttributePrefix  = "ce_"
	FieldVersion     = AttributePrefix + message.AttrSpecVersion
	FieldContentType = "content-type"
	FieldData        = "data"
)

// BinarySize returns the maximum number of fields and values that AppendBinary appends for a message.
func BinarySize(msg *message.RawMessage) int { return 2*len(msg.Attributes) + 4 }

// AppendBinary appends the fields and values of a message. Errors wrap message.ErrEncode.
func AppendBinary(fields []any, msg *message.RawMessage) ([]any, error) {
	version := msg.SpecVersion()
	if version == "" {
		version = message.SpecVersion
	}
	fields = append(fields, FieldVersion, version)
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
			return nil, fmt.Errorf("%w: an attribute has an empty name", message.ErrEncode)
		}
		text, err := Text(name, value)
		if err != nil {
			return nil, fmt.Errorf("%w: attribute %q: %w", message.ErrEncode, name, err)
		}
		if sent, ok := value.(string); !ok || sent != text {
			value = text
		}
		fields = append(fields, fieldName(name), value) // unchanged values need no copy
	}
	if msg.Data != nil {
		fields = append(fields, FieldData, msg.Data)
	}
	return fields, nil
}

// fieldNames contains the field names of common attributes as values that are ready to be sent.
var fieldNames = map[string]any{
	message.AttrDataContentType: FieldContentType,
	message.AttrID:              AttributePrefix + message.AttrID,
	message.AttrSource:          AttributePrefix + message.AttrSource,
	message.AttrType:            AttributePrefix + message.AttrType,
	message.AttrSubject:         AttributePrefix + message.AttrSubject,
	message.AttrTime:            AttributePrefix + message.AttrTime,
	message.AttrCorrelationID:   AttributePrefix + message.AttrCorrelationID,
	message.AttrDestination:     AttributePrefix + message.AttrDestination,
}

func fieldName(attribute string) any {
	if name, ok := fieldNames[attribute]; ok {
		return name
	}
	return AttributePrefix + attribute
}

// Text returns a value in the canonical form of its type in CloudEvents.
func Text(name string, value any) (string, error) {
	if t, ok := value.(time.Time); ok {
		text, err := t.MarshalText()
		return string(text), err
	}
	if IsTime(name) {
		text, ok := value.(string)
		if !ok {
			return "", fmt.Errorf("has the type %T instead of a time", value)
		}
		_, err := Value(name, text)
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
		return "", fmt.Errorf("has the type %T instead of text, number, boolean, time or bytes", value)
	}
}

// IsTime reports whether the values of an attribute are times.
func IsTime(attribute string) bool {
	return attribute == message.AttrTime || attribute == message.AttrExpiryTime
}

// Value parses the text of an attribute and returns its value.
func Value(name, text string) (any, error) {
	if !IsTime(name) {
		return text, nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return nil, errors.New("is not an RFC 3339 time")
	}
	return t, nil
}
