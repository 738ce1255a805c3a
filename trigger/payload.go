package trigger

import (
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/message"
)

// The types of the messages that functions are given.
const (
	TypePubSub = "trigger.pubsub"
	TypeStream = "trigger.stream"
)

// dataField is the field of an entry that holds its payload.
const dataField = "data"

//go:embed payload.schema.json
var schema string

// Schema returns the JSON Schema (2020-12) of a payload.
func Schema() string { return schema }

// Payload is the JSON data of a function's message.
type Payload struct {
	// Channel is the channel of a message, and Pattern the subscribed pattern that matched.
	Channel string `json:"channel,omitempty"`
	Pattern string `json:"pattern,omitempty"`
	// Stream and ID identify an entry.
	Stream string `json:"stream,omitempty"`
	ID     string `json:"id,omitempty"`
	// Body is the payload of a message, or the field data of an entry. It is nil if an entry has no such field.
	Body *Body `json:"payload"`
	// Attributes are the other fields of an entry. It is empty for a message.
	Attributes map[string]string `json:"attributes"`
	Metadata   Metadata          `json:"metadata"`
}

// Body is a payload of arbitrary bytes.
type Body struct {
	// Base64 is the whole payload, encoded as base64 in JSON.
	Base64 []byte `json:"base64"`
	// Text is the payload as text, if it is UTF-8.
	Text *string `json:"text,omitempty"`
}

// Metadata describes the origin of a delivery.
type Metadata struct {
	// Timestamp is the time of receipt of a message, or the time in the id of an entry, in UTC.
	Timestamp time.Time `json:"timestamp"`
	// StreamID is the id of the entry.
	StreamID string `json:"stream_id,omitempty"`
}

// payload builds the payload. It returns an error if JSON cannot represent it.
func (d *Delivery) payload() (Payload, error) {
	p := Payload{
		Channel: d.Channel, Pattern: d.Pattern, Stream: d.Stream, ID: d.ID,
		Attributes: map[string]string{}, Metadata: Metadata{Timestamp: d.Time.UTC(), StreamID: d.ID},
	}
	for name, text := range map[string]string{"channel": d.Channel, "pattern": d.Pattern, "stream": d.Stream} {
		if !utf8.ValidString(text) {
			return Payload{}, fmt.Errorf("the name of the %s is not UTF-8", name)
		}
	}
	if d.Stream == "" {
		if d.Channel == "" {
			return Payload{}, errors.New("the channel has no name")
		}
		p.Body = newBody(d.Data)
		return p, nil
	}
	at, err := entryTime(d.ID)
	if err != nil {
		return Payload{}, err
	}
	p.Metadata.Timestamp = at
	for name, value := range d.Fields {
		switch {
		case name == dataField:
			p.Body = newBody([]byte(value))
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			return Payload{}, fmt.Errorf("field %q is not UTF-8; put binary data into the field %s", name, dataField)
		default:
			p.Attributes[name] = value
		}
	}
	return p, nil
}

func newBody(data []byte) *Body {
	body := &Body{Base64: data}
	if body.Base64 == nil {
		body.Base64 = []byte{} // null is not base64
	}
	if utf8.Valid(data) {
		text := string(data)
		body.Text = &text
	}
	return body
}

// lastYear is the last year that RFC 3339 can represent.
const lastYear = 9999

func entryTime(id string) (time.Time, error) {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	at := time.UnixMilli(n).UTC()
	if err != nil || at.Year() > lastYear {
		return time.Time{}, fmt.Errorf("id %q has no valid time", id)
	}
	return at, nil
}

// added returns the time at which an entry was added or a message was received.
func (d *Delivery) added() time.Time {
	if at, err := entryTime(d.ID); d.ID != "" && err == nil {
		return at
	}
	return d.Time
}

// message returns the function's message. An entry has the same identity in every delivery.
func (d *Delivery) message() (*message.RawMessage, error) {
	p, err := d.payload()
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	attrs := message.Attributes{
		message.AttrSpecVersion: message.SpecVersion, message.AttrDataContentType: message.ContentTypeJSON,
		message.AttrTime: p.Metadata.Timestamp,
	}
	if d.Stream != "" {
		attrs[message.AttrType], attrs[message.AttrSource], attrs[message.AttrID] = TypeStream, d.Stream, d.ID
	} else {
		attrs[message.AttrType], attrs[message.AttrSource], attrs[message.AttrID] = TypePubSub, d.Channel, message.NewID()
	}
	return message.NewRaw(data, attrs, nil), nil
}
