package cloudevents

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// ToEvent converts a message into an event of the SDK that shares its data. Booleans, 32-bit integers, bytes and times keep their
// types. Wider integers, other numbers and objects become text. If the event would be invalid, ToEvent returns an error that
// wraps message.ErrEncode.
func ToEvent(msg *message.RawMessage) (event.Event, error) {
	e, err := toEvent(msg)
	if err != nil {
		return event.Event{}, fmt.Errorf("%w: cloudevents: %w", message.ErrEncode, err)
	}
	return e, nil
}

func toEvent(msg *message.RawMessage) (event.Event, error) {
	if msg == nil {
		return event.Event{}, errors.New("the message is nil")
	}
	if v := msg.SpecVersion(); v != "" && v != message.SpecVersion {
		return event.Event{}, fmt.Errorf("specversion is %q; only %q is supported", v, message.SpecVersion)
	}
	e := event.New(event.CloudEventsVersionV1)
	for _, name := range slices.Sorted(maps.Keys(msg.Attributes)) {
		value := msg.Attributes[name]
		if value == nil || value == "" || name == message.AttrSpecVersion {
			continue
		}
		if err := set(&e, name, value); err != nil {
			return event.Event{}, fmt.Errorf("attribute %q %w", name, err)
		}
	}
	e.DataEncoded = msg.Data
	e.DataBase64 = msg.Data != nil && !isJSON(msg.DataContentType(), msg.Data)
	if err := e.Validate(); err != nil {
		return event.Event{}, fmt.Errorf("event %q: %w", msg.ID(), err)
	}
	return e, nil
}

// isJSON reports whether data can be embedded in JSON unchanged. The SDK does not recognize types that end in +json.
func isJSON(contentType string, data []byte) bool {
	media := contentType
	if parsed, _, err := mime.ParseMediaType(contentType); err == nil {
		media = parsed
	}
	known := media == "" || media == event.ApplicationJSON || media == event.TextJSON
	return known && utf8.Valid(data) && json.Valid(data)
}

func set(e *event.Event, name string, value any) error {
	if name == "data" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || name == "" {
		return errors.New("is not a valid CloudEvents name; use lower-case letters and digits")
	}
	if name == message.AttrTime || name == message.AttrExpiryTime {
		at, err := when(value)
		if err != nil {
			return err
		}
		if name == message.AttrTime {
			return e.Context.SetTime(at)
		}
		return e.Context.SetExtension(name, at)
	}
	text, isText := value.(string)
	if isText && !utf8.ValidString(text) {
		return errors.New("is not UTF-8")
	}
	switch name {
	case message.AttrID, message.AttrType, message.AttrSource, message.AttrSubject, message.AttrDataContentType, message.AttrDataSchema:
		if !isText {
			return fmt.Errorf("has the type %T instead of text", value)
		}
		return setText(e, name, text)
	}
	native, err := extension(value)
	if err != nil {
		return err
	}
	return e.Context.SetExtension(name, native)
}

// setText sets a text attribute unchanged. The SDK's own setters trim blanks, which could make two ids equal.
func setText(e *event.Event, name, text string) error {
	context, ok := e.Context.(*event.EventContextV1)
	if !ok {
		return errors.New("belongs to another version")
	}
	if strings.TrimSpace(text) == "" {
		return errors.New("is blank, which the SDK rejects")
	}
	switch name {
	case message.AttrID:
		context.ID = text
	case message.AttrType:
		context.Type = text
	case message.AttrSubject:
		context.Subject = &text
	case message.AttrDataContentType:
		context.DataContentType = &text
	case message.AttrSource, message.AttrDataSchema:
		u, err := verbatim(text)
		if err != nil {
			return err
		}
		if name == message.AttrSource {
			context.Source = types.URIRef{URL: u}
		} else {
			context.DataSchema = &types.URI{URL: u}
		}
	}
	return nil
}

// verbatim returns a URI that is written as it was read. The SDK would escape it differently, and the source is part of an
// event's identity.
func verbatim(text string) (url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return url.URL{}, errors.New("is not a URI reference")
	}
	if u.String() != text {
		return url.URL{Opaque: text}, nil
	}
	return *u, nil
}

func when(value any) (time.Time, error) {
	switch v := value.(type) {
	case time.Time:
		return v, nil
	case string:
		var t time.Time
		if err := t.UnmarshalText([]byte(v)); err != nil {
			return t, errors.New("is not an RFC 3339 time")
		}
		return t, nil
	}
	return time.Time{}, fmt.Errorf("has the type %T instead of a time", value)
}

// extension converts a value to a type that the SDK supports.
func extension(value any) (any, error) {
	switch v := value.(type) {
	case string, bool, int32, []byte:
		return v, nil
	case time.Time:
		return types.Timestamp{Time: v}, nil
	case json.RawMessage:
		return string(v), nil
	case json.Number:
		return v.String(), nil
	case int, int8, int16, int64, uint, uint8, uint16, uint32, uint64:
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

// FromEvent converts an event of the SDK into a message that shares its data. Bytes become base64 text, and times other than time
// and expirytime become RFC 3339 text, as in every decoded message. The event must be valid and of version 1.0. Errors wrap
// message.ErrDecode.
func FromEvent(e event.Event) (*message.RawMessage, error) {
	if e.Context == nil || e.SpecVersion() != event.CloudEventsVersionV1 {
		return nil, fmt.Errorf("%w: cloudevents: the event does not have version 1.0; convert its Context with AsV1, and its data", message.ErrDecode)
	}
	if err := e.Validate(); err != nil {
		return nil, fmt.Errorf("%w: cloudevents: event %q: %w", message.ErrDecode, e.ID(), err)
	}
	attrs := message.Attributes{
		message.AttrSpecVersion: message.SpecVersion, message.AttrID: e.ID(), message.AttrSource: e.Source(), message.AttrType: e.Type(),
	}
	for name, text := range map[string]string{
		message.AttrSubject: e.Subject(), message.AttrDataContentType: e.DataContentType(), message.AttrDataSchema: e.DataSchema(),
	} {
		if text != "" {
			attrs[name] = text
		}
	}
	if at := e.Time(); !at.IsZero() {
		attrs[message.AttrTime] = at
	}
	for name, value := range e.Extensions() {
		native, err := attribute(name, value)
		if err != nil {
			return nil, fmt.Errorf("%w: cloudevents: event %q: attribute %q %w", message.ErrDecode, e.ID(), name, err)
		}
		attrs[name] = native
	}
	return message.NewRaw(e.Data(), attrs, nil), nil
}

// texts are the extensions that must be texts, regardless of the type that the sender used.
var texts = []string{message.AttrDestination, message.AttrCorrelationID, message.AttrPartitionKey, message.AttrTraceParent, message.AttrTraceState}

// attribute converts a value of the SDK to the type that messages have.
func attribute(name string, value any) (any, error) {
	if name == message.AttrExpiryTime {
		if at, ok := value.(types.Timestamp); ok {
			return at.Time, nil
		}
		return when(value)
	}
	switch v := value.(type) {
	case bool:
		if !slices.Contains(texts, name) {
			return v, nil
		}
	case int32:
		if !slices.Contains(texts, name) {
			return int64(v), nil
		}
	case []byte:
		return base64.StdEncoding.EncodeToString(v), nil
	}
	return types.Format(value)
}

// OutboxEvent converts an event of the SDK into an event for Tx.Emit or Transactor.Enqueue. Set its Key to order it, or its At to
// schedule it.
func OutboxEvent(e event.Event) (luatx.Event, error) {
	msg, err := FromEvent(e)
	if err != nil {
		return luatx.Event{}, err
	}
	body, err := outbox.Encode(message.New(msg.Data, msg.Attributes, nil))
	if err != nil {
		return luatx.Event{}, err
	}
	return luatx.Event{ID: e.ID(), Body: body}, nil
}

// FromOutbox converts an event in the outbox into an event of the SDK with the same id.
func FromOutbox(waiting luatx.Event) (event.Event, error) {
	msg, err := outbox.Decode(waiting.Body)
	if err != nil {
		return event.Event{}, err
	}
	if waiting.ID != "" {
		msg.Attributes[message.AttrID] = waiting.ID
	}
	return ToEvent(msg)
}
