package amqp

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/message"
)

// The prefixes of headers with CloudEvents attributes.
const (
	// PrefixUnderscore is the prefix of the CloudEvents AMQP binding since 1.0.2.
	PrefixUnderscore = "cloudEvents_"
	// PrefixColon is the prefix of the binding before 1.0.2, which some SDKs write.
	PrefixColon = "cloudEvents:"
	// PrefixKnative is the prefix of Knative's RabbitMQ binding.
	PrefixKnative = "ce-"
)

const (
	typeFormats    = "application/cloudevents" // followed by a format: structured mode
	typeStructured = "application/cloudevents+json"
	shortText      = 255 // maximum size of a property, a header's name, an exchange or a routing key, in bytes
)

// publishing encodes an event for the broker.
func publishing(event *message.RawMessage, structured bool, prefix string) (amqp091.Publishing, error) {
	p := amqp091.Publishing{
		DeliveryMode:  amqp091.Persistent,
		MessageId:     short(event.ID()),
		Type:          short(event.Type()),
		CorrelationId: short(event.CorrelationID()),
	}
	if at, ok := event.Time(); ok && at.Unix() > 0 {
		p.Timestamp = at
	}
	if structured {
		body, err := event.MarshalJSON()
		p.ContentType, p.Body = typeStructured+"; charset=utf-8", body
		return p, err
	}
	p.ContentType, p.Body = event.DataContentType(), event.Data
	switch {
	case strings.HasPrefix(strings.ToLower(p.ContentType), typeFormats):
		return p, fmt.Errorf("datacontenttype %q denotes an event in structured mode; set PublisherConfig.Structured", p.ContentType)
	case len(p.ContentType) > shortText:
		return p, fmt.Errorf("datacontenttype has more than %[2]d bytes (%[1]d); set PublisherConfig.Structured", len(p.ContentType), shortText)
	}
	var err error
	p.Headers, err = headers(event.Attributes, prefix)
	return p, err
}

// short returns "" for a text that is too long for a property. The headers contain it as well.
func short(text string) string {
	if len(text) > shortText {
		return ""
	}
	return text
}

func headers(attrs message.Attributes, prefix string) (amqp091.Table, error) {
	table := amqp091.Table{prefix + message.AttrSpecVersion: message.SpecVersion}
	for name, value := range attrs {
		if value == nil || name == message.AttrDataContentType {
			continue
		}
		if name == "" || len(prefix+name) > shortText {
			return nil, fmt.Errorf("attribute %.40q: a header name has 1 to %d bytes; set PublisherConfig.Structured", name, shortText)
		}
		held, err := headerValue(name, value)
		if err != nil {
			return nil, fmt.Errorf("attribute %q %w", name, err)
		}
		table[prefix+name] = held
	}
	return table, nil
}

// headerValue keeps texts, booleans and 32-bit integers, which CloudEvents also has. It converts other values into text.
func headerValue(name string, value any) (any, error) {
	switch v := value.(type) {
	case time.Time:
		text, err := v.MarshalText()
		return string(text), err
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("is not UTF-8")
		}
		if isTime(name) {
			_, err := parseTime(v)
			return v, err
		}
		return v, nil
	}
	if isTime(name) {
		return nil, fmt.Errorf("has the type %T instead of a time", value)
	}
	switch v := value.(type) {
	case bool:
		return v, nil
	case json.Number:
		return v.String(), nil
	case json.RawMessage:
		return string(v), nil
	case []byte:
		return base64.StdEncoding.EncodeToString(v), nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		text := fmt.Sprint(v)
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return int32(n), nil //nolint:gosec // it was parsed as one
		}
		return text, nil
	case float32, float64:
		return fmt.Sprint(v), nil
	}
	return nil, fmt.Errorf("has the type %T instead of text, number, boolean, time or bytes", value)
}

// Unmarshal decodes a delivery, by the first format that it finds:
//
//  1. a content type of application/cloudevents+json: an event in structured mode;
//  2. a header cloudEvents_specversion, cloudEvents:specversion or ce-specversion: binary mode, with the headers of that prefix as
//     attributes;
//  3. otherwise a plain message: its id is the message id, and its type is the type or else the routing key. The correlation id, the
//     timestamp, the content type and headers with valid CloudEvents names become attributes, too.
//
// An event without an id gets the message id. Errors wrap message.ErrDecode.
func Unmarshal(d *amqp091.Delivery) (*message.RawMessage, error) {
	msg, err := unmarshal(d)
	if err != nil {
		if !errors.Is(err, message.ErrDecode) {
			err = fmt.Errorf("%w: %w", message.ErrDecode, err)
		}
		return nil, fmt.Errorf("amqp: message %q: %w", d.MessageId, err)
	}
	if msg.ID() == "" && d.MessageId != "" {
		msg.Attributes[message.AttrID] = d.MessageId
	}
	return msg, nil
}

func unmarshal(d *amqp091.Delivery) (*message.RawMessage, error) {
	if strings.HasPrefix(strings.ToLower(d.ContentType), typeFormats) {
		media, _, err := mime.ParseMediaType(d.ContentType)
		if err != nil || media != typeStructured {
			return nil, fmt.Errorf("the content type is %q; only %s is supported", d.ContentType, typeStructured)
		}
		msg := message.NewRaw(nil, nil, nil)
		return msg, msg.UnmarshalJSON(d.Body)
	}
	for _, prefix := range []string{PrefixUnderscore, PrefixColon, PrefixKnative} {
		if version, ok := d.Headers[prefix+message.AttrSpecVersion]; ok {
			if text, _ := version.(string); !strings.HasPrefix(text, "1.") {
				return nil, fmt.Errorf("specversion is %v; only %q is supported", version, message.SpecVersion)
			}
			return binary(d, prefix)
		}
	}
	return plain(d)
}

func binary(d *amqp091.Delivery, prefix string) (*message.RawMessage, error) {
	attrs := make(message.Attributes, len(d.Headers)+1)
	for header, value := range d.Headers {
		name, ok := strings.CutPrefix(header, prefix)
		if !ok || name == message.AttrDataContentType || value == nil {
			continue
		}
		v, err := attributeValue(name, value)
		if err != nil {
			return nil, fmt.Errorf("header %q %w", header, err)
		}
		attrs[name] = v
	}
	if d.ContentType != "" {
		attrs[message.AttrDataContentType] = d.ContentType
	}
	return message.NewRaw(body(d), attrs, nil), nil
}

// body returns nil for an empty body, because AMQP cannot distinguish it from no data.
func body(d *amqp091.Delivery) []byte {
	if len(d.Body) == 0 {
		return nil
	}
	return d.Body
}

// plain decodes a delivery without CloudEvents headers. It omits headers that are not valid attributes.
func plain(d *amqp091.Delivery) (*message.RawMessage, error) {
	attrs := message.Attributes{message.AttrSpecVersion: message.SpecVersion}
	for header, value := range d.Headers {
		if !isName(header) || value == nil || header == message.AttrSpecVersion {
			continue
		}
		if v, err := attributeValue(header, value); err == nil {
			attrs[header] = v
		}
	}
	for name, text := range map[string]string{
		message.AttrID: d.MessageId, message.AttrDataContentType: d.ContentType, message.AttrCorrelationID: d.CorrelationId, message.AttrType: d.Type,
	} {
		if text != "" {
			attrs[name] = text
		}
	}
	if attrs[message.AttrType] == nil && d.RoutingKey != "" {
		attrs[message.AttrType] = d.RoutingKey
	}
	if _, ok := attrs[message.AttrTime]; !ok && !d.Timestamp.IsZero() {
		attrs[message.AttrTime] = d.Timestamp.UTC()
	}
	return message.NewRaw(body(d), attrs, nil), nil
}

func isName(name string) bool {
	return name != "" && name != "data" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// texts are the attributes that must be texts, regardless of the type that the sender used.
var texts = map[string]bool{
	message.AttrID: true, message.AttrSource: true, message.AttrSpecVersion: true, message.AttrType: true, message.AttrSubject: true,
	message.AttrDataSchema: true, message.AttrDestination: true, message.AttrCorrelationID: true, message.AttrPartitionKey: true,
	message.AttrTraceParent: true, message.AttrTraceState: true,
}

func attributeValue(name string, value any) (any, error) {
	v, err := nativeValue(value)
	switch {
	case err != nil:
		return nil, err
	case isTime(name):
		if t, ok := value.(time.Time); ok {
			return t.UTC(), nil
		}
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("has the type %T instead of a time", value)
		}
		return parseTime(text)
	case texts[name]:
		return fmt.Sprint(v), nil
	}
	return v, nil
}

// nativeValue converts a value to the type that it has in a message decoded from JSON.
func nativeValue(value any) (any, error) {
	switch v := value.(type) {
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("is not UTF-8")
		}
		return v, nil
	case bool:
		return v, nil
	case []byte:
		return base64.StdEncoding.EncodeToString(v), nil
	case int, int8, int16, int32, int64, uint8, uint16, uint32, uint64:
		text := fmt.Sprint(v)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		return json.Number(text), nil
	case float32, float64:
		return fmt.Sprint(v), nil
	case time.Time:
		text, err := v.UTC().MarshalText()
		return string(text), err
	}
	return nil, fmt.Errorf("has the type %T instead of text, number, boolean, time or bytes", value)
}

func isTime(name string) bool { return name == message.AttrTime || name == message.AttrExpiryTime }

func parseTime(text string) (time.Time, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return t, errors.New("is not an RFC 3339 time")
	}
	return t, nil
}
