package message

import "errors"

// Identity identifies a message for an inbox. Messages with the same source and id are the same message. An inbox applies a
// message once, even if it is delivered several times.
type Identity struct {
	// Source is the namespace of the ID. It may be empty.
	Source string
	// ID must not be empty.
	ID string
}

var errNoID = errors.New("message has no ID attribute")

// IdentityOf returns the source and the id of a message, which identify an event in CloudEvents. Inboxes use it by default. If
// the message has no id, IdentityOf returns a permanent error.
func IdentityOf(msg *Message) (Identity, error) {
	if msg.ID() == "" {
		return Identity{}, Permanent(errNoID)
	}
	return Identity{Source: msg.Source(), ID: msg.ID()}, nil
}
