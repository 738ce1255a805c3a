package cehttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/luatx/luatx/message"
)

// Decode returns the events of a request in any mode: one event, or in Batched mode any number. Its errors wrap
// message.ErrDecode.
func Decode(header http.Header, body []byte) ([]*message.RawMessage, error) {
	events, err := decode(header, body)
	switch {
	case errors.Is(err, message.ErrDecode):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", message.ErrDecode, err)
	}
	for i, event := range events {
		if err := required(event); err != nil {
			return nil, fmt.Errorf("%w: event %d: %w", message.ErrDecode, i, err)
		}
	}
	return events, nil
}

func decode(header http.Header, body []byte) ([]*message.RawMessage, error) {
	contentType := header.Get(headerType)
	if !isFormat(contentType) {
		event, err := fromBinary(header, body)
		return []*message.RawMessage{event}, err
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, fmt.Errorf("content type %q: %w", contentType, err)
	}
	if set := params["charset"]; set != "" && !strings.EqualFold(set, "utf-8") {
		return nil, fmt.Errorf("charset %q is not supported, want utf-8", set)
	}
	switch media {
	case typeStructured:
		event, err := fromJSON(body)
		return []*message.RawMessage{event}, err
	case typeBatched:
		return fromBatch(body)
	}
	return nil, fmt.Errorf("content type %q is not supported, want %s, %s or binary mode", media, typeStructured, typeBatched)
}

// isFormat reports whether a content type belongs to a mode whose body contains the whole event.
func isFormat(contentType string) bool {
	return strings.HasPrefix(strings.ToLower(contentType), typePrefix)
}

func fromJSON(text []byte) (*message.RawMessage, error) {
	event := message.NewRaw(nil, nil, nil)
	return event, event.UnmarshalJSON(text)
}

func fromBatch(body []byte) ([]*message.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the batch: %w", err)
	}
	events := make([]*message.RawMessage, len(list))
	for i, text := range list {
		event, err := fromJSON(text)
		if err != nil {
			return nil, fmt.Errorf("event %d of the batch: %w", i, err)
		}
		events[i] = event
	}
	return events, nil
}

func fromBinary(header http.Header, body []byte) (*message.RawMessage, error) {
	attrs := message.Attributes{}
	for field, values := range header {
		if len(field) <= len(headerPrefix) || !strings.EqualFold(field[:len(headerPrefix)], headerPrefix) {
			continue
		}
		name := strings.ToLower(field[len(headerPrefix):])
		if name == message.AttrDataContentType {
			continue // Content-Type has the value
		}
		if !isName(name) {
			return nil, fmt.Errorf("header %s is no attribute", field)
		}
		if _, twice := attrs[name]; twice || len(values) != 1 {
			return nil, fmt.Errorf("header %s does not come once", field)
		}
		text, err := unescape(values[0])
		if err != nil {
			return nil, fmt.Errorf("header %s %w", field, err)
		}
		if attrs[name], err = attributeValue(name, text); err != nil {
			return nil, fmt.Errorf("header %s %w", field, err)
		}
	}
	if v := attrs.SpecVersion(); !strings.HasPrefix(v, "1.") {
		return nil, fmt.Errorf("ce-specversion %q is not supported, want %q", v, message.SpecVersion)
	}
	if contentType := header.Get(headerType); contentType != "" {
		attrs[message.AttrDataContentType] = contentType
	}
	if len(body) == 0 {
		body = nil
	}
	return message.NewRaw(body, attrs, nil), nil
}
