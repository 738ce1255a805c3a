// Package inbound contains the parts that the subscribers of all brokers share.
package inbound

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"time"

	"github.com/luatx/luatx/message"
)

// AttrReason is the attribute of a dead letter that contains the reason.
const AttrReason = "deadletterreason"

// deadLetterTimeout bounds the publishing of a dead letter.
const deadLetterTimeout = 10 * time.Second

// Decode converts the message that a broker delivered with a function of the user. If the function panics or returns a
// nil message, Decode returns an error. The attributes of the message are never nil.
func Decode[T any](delivered T, unmarshal func(T) (*message.RawMessage, error)) (msg *message.RawMessage, err error) {
	defer RecoverTo(&err)
	msg, err = unmarshal(delivered)
	switch {
	case err != nil:
		return nil, err
	case msg == nil:
		return nil, fmt.Errorf("%w: Unmarshal returned neither message nor error", message.ErrDecode)
	}
	if msg.Attributes == nil {
		msg.Attributes = message.Attributes{}
	}
	return msg, nil
}

// RecoverTo prevents a panic of a user's function from ending the loop that calls it. The caller must defer it.
func RecoverTo(err *error) {
	if v := recover(); v != nil {
		*err = &message.PanicError{Value: v, Stack: debug.Stack()}
	}
}

// Publisher is the publisher of a relay.
type Publisher interface {
	Publish(ctx context.Context, events []*message.RawMessage) []error
}

// Bury publishes a permanently rejected message as a dead letter, with the reason, within 10 s. It does not change msg.
func Bury(ctx context.Context, letters Publisher, msg *message.RawMessage, reason error) error {
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	letter := message.NewRaw(msg.Data, maps.Clone(msg.Attributes), nil)
	letter.Attributes[AttrReason] = reason.Error()
	return errors.Join(letters.Publish(ctx, []*message.RawMessage{letter})...)
}
