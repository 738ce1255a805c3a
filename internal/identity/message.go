package identity

import (
	"errors"

	"github.com/luatx/luatx/message"
)

var errEmptyID = errors.New("MessageID returned an identity without an ID; return an ID or an error")

// Of returns the identity of a message, which by determines. Its errors are permanent, because a redelivery has the
// same message.
func Of(by func(*message.Message) (message.Identity, error), msg *message.Message) (message.Identity, error) {
	id, err := by(msg)
	if err == nil && id.ID == "" {
		err = errEmptyID
	}
	if err != nil {
		return id, message.Permanent(err)
	}
	return id, nil
}
