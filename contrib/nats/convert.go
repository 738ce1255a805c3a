package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay/cehttp"
)

// The headers of a CloudEvent. NATS clients distinguish upper and lower case, so headers are written in lower case, as in the
// binding, and read in any case.
const (
	prefix            = "ce-"
	headerContentType = "content-type"
	headerDataType    = prefix + message.AttrDataContentType
	headerVersion     = prefix + message.AttrSpecVersion

	contentTypes   = "application/cloudevents"
	typeStructured = contentTypes + "+json"
)

// encode encodes an event as headers and payload. It writes the content type of the data twice, because receivers look for it in
// ce-datacontenttype, as in the binding, or in content-type, as in HTTP.
func encode(event *message.RawMessage, mode cehttp.Mode) (nats.Header, []byte, error) {
	fields, data, err := cehttp.Encode(mode, event)
	if err != nil {
		return nil, nil, err
	}
	header := make(nats.Header, len(fields)+2)
	for name, values := range fields {
		header[strings.ToLower(name)] = values
	}
	if of := header[headerContentType]; mode == cehttp.Binary && len(of) == 1 {
		header[headerDataType] = []string{escape(of[0])}
	}
	return header, data, nil
}

// decode decodes headers and payload: a CloudEvent in either mode, or plain data. Errors wrap message.ErrDecode.
func decode(subject string, header nats.Header, data []byte) (*message.RawMessage, error) {
	fields := make(http.Header)
	for name, values := range header {
		if small := strings.ToLower(name); small == headerContentType || strings.HasPrefix(small, prefix) {
			key := http.CanonicalHeaderKey(small)
			fields[key] = append(fields[key], values...)
		}
	}
	contentType := fields.Get(headerContentType)
	structured := strings.HasPrefix(strings.ToLower(contentType), contentTypes)
	switch {
	case !structured && fields.Get(headerVersion) == "":
		return bare(subject, contentType, data), nil
	case !structured && fields.Get(headerDataType) != "":
		text, err := unescape(fields.Get(headerDataType))
		if err != nil {
			return nil, fmt.Errorf("%w: header %s: %w", message.ErrDecode, headerDataType, err)
		}
		fields.Set(headerContentType, text)
	}
	events, err := cehttp.Decode(fields, data)
	if err != nil {
		return nil, err
	}
	if len(events) != 1 {
		return nil, fmt.Errorf("%w: %d events in one message; publish each event as a message", message.ErrDecode, len(events))
	}
	return events[0], nil
}

// bare decodes a message without CloudEvents headers: an event in JSON, as in the first version of the binding, or plain data
// whose type is the subject.
func bare(subject, contentType string, data []byte) *message.RawMessage {
	if isEvent(data) {
		if events, err := cehttp.Decode(http.Header{"Content-Type": {typeStructured}}, data); err == nil {
			return events[0]
		}
	}
	return plain(subject, contentType, data)
}

// plain returns a message with data and the attributes known from the subject and the content type.
func plain(subject, contentType string, data []byte) *message.RawMessage {
	attrs := message.Attributes{message.AttrSpecVersion: message.SpecVersion, message.AttrType: subject}
	if contentType != "" {
		attrs[message.AttrDataContentType] = contentType
	}
	return message.NewRaw(data, attrs, nil)
}

func isEvent(data []byte) bool {
	if !bytes.Contains(data, []byte(`"specversion"`)) {
		return false
	}
	var event struct {
		SpecVersion string `json:"specversion"`
	}
	return json.Unmarshal(data, &event) == nil && event.SpecVersion != ""
}

// MessageID returns the Nats-Msg-Id of an event: its source and its id, separated by a blank and percent-encoded if they contain
// blanks. The id alone is unique only within its source, and several sources may publish to one stream.
func MessageID(event *message.RawMessage) string {
	return escape(event.Source()) + " " + escape(event.ID())
}

// escape percent-encodes blanks, quotes, percent signs and everything outside printable ASCII, as in the binding.
func escape(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		if b > ' ' && b <= '~' && b != '"' && b != '%' {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	return out.String()
}

func unescape(value string) (string, error) {
	if inner, ok := strings.CutPrefix(value, `"`); ok { // as older senders write it
		value = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(strings.TrimSuffix(inner, `"`))
	}
	text, err := url.PathUnescape(value)
	if err == nil && !utf8.ValidString(text) {
		err = errors.New("is not UTF-8")
	}
	return text, err
}
