// Package outbox converts a handler's outputs into events that commit with its transaction, and operates on the stored events.
package outbox

import (
	"fmt"

	"github.com/luatx/luatx/message"
)

// Encode encodes a message as the body of an event: structured CloudEvents JSON with the destination among the attributes.
func Encode(msg *message.Message) ([]byte, error) {
	body, err := msg.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("outbox: encode %q: %w", msg.ID(), err)
	}
	return body, nil
}

// Decode decodes the body of an event.
func Decode(body []byte) (*message.RawMessage, error) {
	var msg message.RawMessage
	if err := msg.UnmarshalJSON(body); err != nil {
		return nil, fmt.Errorf("outbox: decode: %w", err)
	}
	return &msg, nil
}
