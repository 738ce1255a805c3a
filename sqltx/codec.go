package sqltx

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/luatx/luatx/message"
)

// row is an event as the outbox stores it.
type row struct {
	id         int64
	topic      string
	eventType  string
	data       string // JSON. If base64 is set, a JSON string of the bytes in base64, or null without data
	base64     bool
	attributes string // a JSON object
	key        string // ordering key; empty for none
	attempts   int
}

// noData is the data column of a message without data, whose base64 is set. The null of data in JSON has no base64.
const noData = "null"

// encode returns the columns of an event: the attributes and the data of a structured CloudEvent, separately.
func encode(event *message.Message) (row, error) {
	attributes, err := message.New(nil, event.Attributes, nil).MarshalJSON()
	if err != nil {
		return row{}, fmt.Errorf("marshal attributes: %w", err)
	}
	whole, err := event.MarshalJSON()
	if err != nil {
		return row{}, fmt.Errorf("marshal data: %w", err)
	}
	var parts struct {
		Data   json.RawMessage `json:"data"`
		Base64 json.RawMessage `json:"data_base64"`
	}
	if err := json.Unmarshal(whole, &parts); err != nil {
		return row{}, fmt.Errorf("marshal data: %w", err)
	}
	r := row{topic: event.Destination(), eventType: event.Type(), attributes: string(attributes), data: noData, base64: true}
	switch {
	case parts.Base64 != nil:
		r.data = string(parts.Base64)
	case parts.Data != nil:
		r.data, r.base64 = string(parts.Data), false
	}
	return r, nil
}

// decode decodes the message of an event. Its attributes include the destination.
func (r row) decode() (*message.RawMessage, error) {
	n := len(r.attributes)
	if n < 2 || r.attributes[n-1] != '}' {
		return nil, errors.New("the attributes are not a JSON object")
	}
	text := r.attributes
	switch {
	case !r.base64:
		text = r.attributes[:n-1] + `,"data":` + r.data + "}"
	case r.data != noData:
		text = r.attributes[:n-1] + `,"data_base64":` + r.data + "}"
	}
	var msg message.RawMessage
	if err := msg.UnmarshalJSON([]byte(text)); err != nil {
		return nil, err
	}
	if msg.Destination() == "" && r.topic != "" {
		msg.Attributes[message.AttrDestination] = r.topic
	}
	return &msg, nil
}
