package inbox

import (
	"errors"
	"fmt"

	"github.com/luatx/luatx/message"
)

var errEmptyID = errors.New("Config.MessageID returned an identity without an ID; return an ID or an error")

// identify returns the identity of a message. Its errors are permanent: the message is the same at its next delivery.
func identify(by func(*message.Message) (message.Identity, error), msg *message.Message) (message.Identity, error) {
	id, err := by(msg)
	if err == nil && id.ID == "" {
		err = errEmptyID
	}
	if err != nil {
		return id, message.Permanent(fmt.Errorf("inbox: %w", err))
	}
	return id, nil
}
