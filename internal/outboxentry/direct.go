package outboxentry

import (
	"fmt"

	"github.com/luatx/luatx/message"
)

// Direct sets the destination of an event that names none itself. A nil function, or an empty destination, leaves the event
// as it is.
func Direct(event *message.Message, destination func(*message.Message) (string, error)) error {
	if destination == nil || event.Destination() != "" {
		return nil
	}
	name, err := destination(event)
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	if name != "" {
		event.Attributes[message.AttrDestination] = name
	}
	return nil
}
