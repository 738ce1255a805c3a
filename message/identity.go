package message

import "errors"

// Identity identifies a message for an inbox: messages with the same source and id are the same message. An inbox applies
// a message once, however often it is delivered.
type Identity struct {
	// Source is the namespace of the ID. It may be empty.
	Source string
	// ID must not be empty.
	ID string
}

var errNoID = errors.New("message has no ID attribute")

// IdentityOf returns the source and the id of a message, as CloudEvents identify an event. It is what inboxes use unless
// they are configured with another function. A message without an id has no identity: that error is permanent.
func IdentityOf(msg *Message) (Identity, error) {
	if msg.ID() == "" {
		return Identity{}, Permanent(errNoID)
	}
	return Identity{Source: msg.Source(), ID: msg.ID()}, nil
}
