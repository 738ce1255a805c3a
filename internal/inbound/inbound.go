// Package inbound is what subscribers have in common, whatever broker they read.
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

// AttrReason is the attribute in which a dead letter says why it is one.
const AttrReason = "deadletterreason"

// deadLetterTimeout bounds the publishing of a dead letter.
const deadLetterTimeout = 10 * time.Second

// Decode makes a message of what a broker delivered, by a function of the user's: its panic is an error, and so is a
// nil message. The message has attributes, if only none.
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

// RecoverTo keeps a panic of a user's function from ending the loop that calls it. It is to be deferred.
func RecoverTo(err *error) {
	if v := recover(); v != nil {
		*err = &message.PanicError{Value: v, Stack: debug.Stack()}
	}
}

// Publisher is a relay's.
type Publisher interface {
	Publish(ctx context.Context, events []*message.RawMessage) []error
}

// Bury publishes a message that was refused for good, with the reason, within 10 s. Msg stays as it is.
func Bury(ctx context.Context, letters Publisher, msg *message.RawMessage, reason error) error {
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	letter := message.NewRaw(msg.Data, maps.Clone(msg.Attributes), nil)
	letter.Attributes[AttrReason] = reason.Error()
	return errors.Join(letters.Publish(ctx, []*message.RawMessage{letter})...)
}
