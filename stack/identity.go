package stack

import (
	"fmt"

	"github.com/luatx/luatx/message"
)

// checkMarks returns an error if the marks of pipeline mode identify messages differently than MessageID does in scripted mode. A
// service would then lose or repeat messages when it changes its mode.
func (c Config) checkMarks() error {
	if c.MarkKey == nil {
		return nil // the default uses every part of an identity
	}
	one := message.Identity{Source: "/one", ID: "1"}
	two := message.Identity{Source: "/one", ID: "2"}
	switch first, again := c.MarkKey(one), c.MarkKey(one); {
	case first != again:
		return fmt.Errorf("stack: check Config.MarkKey: it returns the keys %q and %q for one message; return the same key for the same Identity", first, again)
	case first == c.MarkKey(two):
		return fmt.Errorf("stack: check Config.MarkKey: it returns the key %q for the messages \"1\" and \"2\", which MessageID tells apart; use Identity.ID in it", first)
	}
	one, two = c.identityFrom("/one"), c.identityFrom("/two")
	if one != two && c.MarkKey(one) == c.MarkKey(two) {
		return fmt.Errorf("stack: check Config.MarkKey: it returns the key %q for messages of two sources, which MessageID tells apart; use Identity.Source in it, or return an Identity without a Source from MessageID",
			c.MarkKey(one))
	}
	return nil
}

// identityFrom returns the identity of a sample message from a source. If MessageID rejects the sample, the identity is empty
// and cannot be used to compare sources.
func (c Config) identityFrom(source string) (id message.Identity) {
	identify := c.MessageID
	if identify == nil {
		identify = message.IdentityOf
	}
	defer func() {
		if recover() != nil {
			id = message.Identity{}
		}
	}()
	id, err := identify(message.New(nil, message.Attributes{
		message.AttrID: "1", message.AttrSource: source, message.AttrType: "check", message.AttrSubject: "check",
	}, nil))
	if err != nil {
		return message.Identity{}
	}
	return id
}
