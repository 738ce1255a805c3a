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

// dataField is the field of an entry that is its payload.
const dataField = "data"

//go:embed payload.schema.json
var schema string

// Schema returns the JSON Schema (2020-12) of a payload.
func Schema() string { return schema }

// Payload is what a function is given of a delivery, as JSON.
type Payload struct {
	// Channel is where a message was published, and Pattern what it was subscribed to by.
	Channel string `json:"channel,omitempty"`
	Pattern string `json:"pattern,omitempty"`
	// Stream and ID are of an entry.
	Stream string `json:"stream,omitempty"`
	ID     string `json:"id,omitempty"`
	// Body is a message's payload, or an entry's field data; nil where an entry has none.
	Body *Body `json:"payload"`
	// Attributes are the other fields of an entry; empty for a message.
	Attributes map[string]string `json:"attributes"`
	Metadata   Metadata          `json:"metadata"`
}

// Body is a payload of any bytes.
type Body struct {
	// Base64 is all of it, in base64 as JSON.
	Base64 []byte `json:"base64"`
	// Text is the same as text, where it is UTF-8.
	Text *string `json:"text,omitempty"`
}

// Metadata says when and where a delivery comes from.
type Metadata struct {
	// Timestamp is when a message was received, or an entry was added, as its id says; UTC.
	Timestamp time.Time `json:"timestamp"`
	// StreamID is the entry's id.
	StreamID string `json:"stream_id,omitempty"`
}

// payload builds the payload. The error says what JSON cannot hold.
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
			return Payload{}, fmt.Errorf("field %q is not UTF-8: only the field %s may be", name, dataField)
		default:
			p.Attributes[name] = value
		}
	}
	return p, nil
}

func newBody(data []byte) *Body {
	body := &Body{Base64: data}
	if body.Base64 == nil {
		body.Base64 = []byte{} // null is no base64
	}
	if utf8.Valid(data) {
		text := string(data)
		body.Text = &text
	}
	return body
}

// lastYear is the last that RFC 3339 can write.
const lastYear = 9999

func entryTime(id string) (time.Time, error) {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	at := time.UnixMilli(n).UTC()
	if err != nil || at.Year() > lastYear {
		return time.Time{}, fmt.Errorf("id %q holds no time", id)
	}
	return at, nil
}

// added returns when an entry was added, or a message was received.
func (d *Delivery) added() time.Time {
	if at, err := entryTime(d.ID); d.ID != "" && err == nil {
		return at
	}
	return d.Time
}

// message makes of a delivery what the function is given. An entry keeps its identity, however often it comes.
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
