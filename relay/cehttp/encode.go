// Package cehttp implements the HTTP binding of CloudEvents 1.0 for messages. It encodes the requests that the HTTP
// publisher of package relay sends; receivers use it to decode them and to verify their signatures. It does not need Redis.
package cehttp

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/luatx/luatx/message"
)

// Mode is how a request carries its events.
type Mode int

const (
	// Structured puts one event into a request: the whole event as JSON in the body.
	Structured Mode = iota
	// Binary puts one event into a request: its unchanged data in the body, its attributes in headers.
	Binary
	// Batched puts any number of events into a request, as a JSON array. Use it only for receivers that support it.
	Batched
)

// The content types of the modes other than Binary.
const (
	typePrefix     = "application/cloudevents"
	typeStructured = "application/cloudevents+json"
	typeBatched    = "application/cloudevents-batch+json"
	charset        = "; charset=utf-8"
)

const (
	headerType   = "Content-Type"
	headerPrefix = "Ce-" // the canonical form of ce-
)

// Encode returns the headers and the body of a request with the given events. Only Batched mode allows more or fewer than
// one. In Binary mode, attributes that are neither text nor a time become text, and a missing content type becomes
// application/json. Errors wrap message.ErrEncode.
func Encode(mode Mode, events ...*message.RawMessage) (http.Header, []byte, error) {
	for _, event := range events {
		if err := required(event); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", message.ErrEncode, err)
		}
	}
	switch {
	case mode == Batched:
		return batched(events)
	case len(events) != 1:
		return nil, nil, fmt.Errorf("%w: %d events in a request of one; use cehttp.Batched", message.ErrEncode, len(events))
	case mode == Structured:
		body, err := events[0].MarshalJSON()
		return http.Header{headerType: {typeStructured + charset}}, body, err
	case mode == Binary:
		header, err := binary(events[0])
		if err != nil {
			return nil, nil, fmt.Errorf("%w: event %q: %w", message.ErrEncode, events[0].ID(), err)
		}
		return header, events[0].Data, nil
	}
	return nil, nil, fmt.Errorf("%w: mode %d is unknown; use cehttp.Structured, Binary or Batched", message.ErrEncode, mode)
}

// required returns an error if an event is not a valid CloudEvent.
func required(event *message.RawMessage) error {
	if event == nil {
		return errors.New("an event is nil")
	}
	for _, name := range []string{message.AttrID, message.AttrSource, message.AttrType} {
		if text, _ := event.Attributes[name].(string); text == "" {
			return fmt.Errorf("event %q has no %s, which CloudEvents require", event.ID(), name)
		}
	}
	return nil
}

func batched(events []*message.RawMessage) (http.Header, []byte, error) {
	list := make([][]byte, len(events))
	for i, event := range events {
		text, err := event.MarshalJSON()
		if err != nil {
			return nil, nil, err
		}
		list[i] = text
	}
	var body bytes.Buffer
	body.WriteByte('[')
	body.Write(bytes.Join(list, []byte{','}))
	body.WriteByte(']')
	return http.Header{headerType: {typeBatched + charset}}, body.Bytes(), nil
}

func binary(event *message.RawMessage) (http.Header, error) {
	header := http.Header{headerPrefix + "Specversion": {message.SpecVersion}}
	for _, name := range slices.Sorted(maps.Keys(event.Attributes)) {
		value := event.Attributes[name]
		if value == nil || name == message.AttrDataContentType {
			continue
		}
		if !isName(name) {
			return nil, fmt.Errorf("attribute %q: a header name has only lower-case letters and digits, and is not data; use cehttp.Structured", name)
		}
		text, err := attributeText(name, value)
		if err != nil {
			return nil, fmt.Errorf("attribute %q %w", name, err)
		}
		header.Set(headerPrefix+name, escape(text))
	}
	contentType := event.DataContentType()
	if err := checkContentType(contentType); err != nil {
		return nil, err
	}
	if contentType == "" && event.Data != nil {
		contentType = message.ContentTypeJSON
	}
	if contentType != "" {
		header.Set(headerType, contentType)
	}
	return header, nil
}

// isName reports whether CloudEvents allow the name of an attribute. Other names would not survive in a header.
func isName(name string) bool {
	return name != "" && name != "data" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// checkContentType returns an error if a content type would end its header or select another mode.
func checkContentType(contentType string) error {
	for _, b := range []byte(contentType) {
		if b < ' ' || b > '~' {
			return fmt.Errorf("datacontenttype %q is no header value", contentType)
		}
	}
	if strings.TrimSpace(contentType) != contentType {
		return fmt.Errorf("datacontenttype %q has blanks around it", contentType)
	}
	if strings.HasPrefix(strings.ToLower(contentType), typePrefix) {
		return fmt.Errorf("datacontenttype %q denotes an event of another mode; use cehttp.Structured", contentType)
	}
	return nil
}
