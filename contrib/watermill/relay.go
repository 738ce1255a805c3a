package watermill

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	wm "github.com/ThreeDotsLabs/watermill/message"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// RelayConfig configures Relay. The zero value is usable.
type RelayConfig struct {
	// Topic returns the topic of an event. Defaults to its destination.
	Topic func(*message.RawMessage) (string, error)
	// Unavailable reports whether an error of the Publisher means that its broker is unreachable, which does not count as an
	// attempt. Defaults to none: every error counts.
	Unavailable func(error) bool
}

// Relay adapts any Watermill Publisher to a relay. The UUID of a message is the event's id, so that consumers can recognize
// duplicates. Events are sent one by one in their order, because Watermill does not report which of several messages failed. If the
// relay stops or the time of the call is over, the other events are not sent and lose no attempt. The scopes are the topics.
func Relay(publisher wm.Publisher, cfg RelayConfig) (relay.Scoped, error) {
	if publisher == nil {
		return nil, errors.New("watermill: Relay needs a Publisher")
	}
	if cfg.Topic == nil {
		cfg.Topic = destination
	}
	r := &relaying{publisher, cfg}
	return relay.WithScope(relay.PublisherFunc(r.publish), func(event *message.RawMessage) string {
		topic, _ := cfg.Topic(event)
		return topic
	}), nil
}

var errNoTopic = errors.New("watermill: the event has no destination; set a destination or RelayConfig.Topic")

func destination(event *message.RawMessage) (string, error) {
	if topic := event.Destination(); topic != "" {
		return topic, nil
	}
	return "", relay.Classify("unrouted", errNoTopic)
}

type relaying struct {
	publisher wm.Publisher
	cfg       RelayConfig
}

func (r *relaying) publish(ctx context.Context, events []*message.RawMessage) []error {
	errs := make([]error, len(events))
	held := map[string]error{} // lanes and topics with an event that was not sent
	for i, event := range events {
		lane := cmp.Or(event.PartitionKey(), event.ID())
		if err := held[lane]; err != nil {
			errs[i] = relay.Later(err, 0)
			continue
		}
		if errs[i] = r.send(ctx, event); errs[i] != nil {
			held[lane] = errs[i]
		}
	}
	return errs
}

func (r *relaying) send(ctx context.Context, event *message.RawMessage) error {
	if ctx.Err() != nil {
		return relay.Later(context.Cause(ctx), 0)
	}
	topic, err := r.cfg.Topic(event)
	if err != nil {
		return err
	}
	msg, err := FromRaw(event)
	if err != nil {
		return err
	}
	msg.SetContext(ctx)
	switch err := r.publisher.Publish(topic, msg); {
	case err == nil:
		return nil
	case ctx.Err() != nil: // the relay stops, or its time has run out
		return relay.Later(fmt.Errorf("watermill: %q: %w", topic, err), 0)
	case r.cfg.Unavailable != nil && r.cfg.Unavailable(err):
		return relay.Unavailable(fmt.Errorf("watermill: %q: %w", topic, err))
	default:
		return fmt.Errorf("watermill: %q: %w", topic, err)
	}
}
