package message

import (
	"context"
	"fmt"
	"maps"
	"reflect"
)

// CommandHandlerConfig configures the inputs and outputs of a command handler.
type CommandHandlerConfig struct {
	// Source is the source of the events. Defaults to "/" and the handler's name in the Router.
	Source string
	// CommandType is the event type of the messages that it handles. Defaults to Naming of the command's Go type.
	CommandType string
	// Naming returns the event type of each event from the event's Go type. Defaults to DottedNaming.
	Naming Naming
	// Attributes returns attributes for one event, such as its subject or destination. They override the handler's own
	// attributes. Defaults to none.
	Attributes func(command, event any) Attributes
}

// NewCommandHandler returns a Handler for a function that does not use messages: it takes a command and returns events. Each
// event becomes a message with source, type, datacontenttype and specversion, and with the correlation id of the input, or else
// its id. An event has no id: an outbox derives one, and a publisher without an outbox adds a new one (NewID).
//
// An event has the time of the input, or none if the input has none. A second run of the handler for the same input therefore
// creates the same events, if fn and CommandHandlerConfig.Attributes return the same values.
func NewCommandHandler[C, E any](fn func(ctx context.Context, cmd C) ([]E, error), cfg CommandHandlerConfig) Handler {
	if cfg.Naming == nil {
		cfg.Naming = DottedNaming
	}
	if cfg.CommandType == "" {
		cfg.CommandType = cfg.Naming(reflect.TypeFor[C]())
	}
	return &commandHandler[C, E]{cfg: cfg, fn: fn}
}

type commandHandler[C, E any] struct {
	cfg CommandHandlerConfig
	fn  func(context.Context, C) ([]E, error)
}

func (h *commandHandler[C, E]) EventType() string { return h.cfg.CommandType }
func (h *commandHandler[C, E]) NewInput() any     { return new(C) }

func (h *commandHandler[C, E]) Handle(ctx context.Context, msg *Message) ([]*Message, error) {
	cmd, err := dataAs[C](msg)
	if err != nil {
		return nil, err
	}
	events, err := h.fn(ctx, cmd)
	if err != nil {
		return nil, err
	}
	outs := make([]*Message, len(events))
	for i, event := range events {
		if outs[i], err = h.output(ctx, msg, cmd, event); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
	}
	return outs, nil
}

func (h *commandHandler[C, E]) output(ctx context.Context, in *Message, cmd C, event E) (*Message, error) {
	eventType := h.cfg.Naming(reflect.TypeOf(event))
	attrs := Attributes{
		AttrSpecVersion:     SpecVersion,
		AttrSource:          h.source(ctx),
		AttrType:            eventType,
		AttrDataContentType: ContentTypeJSON,
	}
	if id := Correlation(in.Attributes); id != "" {
		attrs[AttrCorrelationID] = id
	}
	if at, ok := in.Time(); ok {
		attrs[AttrTime] = at.UTC()
	}
	if h.cfg.Attributes != nil {
		maps.Copy(attrs, h.cfg.Attributes(cmd, event))
	}
	if attrs.Type() == "" {
		return nil, Permanent(fmt.Errorf("message: an event of Go type %T has no event type; set Naming or return a type from Attributes", event))
	}
	return New(event, attrs, nil), nil
}

func (h *commandHandler[C, E]) source(ctx context.Context) string {
	if h.cfg.Source != "" {
		return h.cfg.Source
	}
	name, ok := HandlerNameFromContext(ctx)
	if !ok {
		name = h.cfg.CommandType
	}
	return "/" + name
}

// Correlation returns the correlation id for messages that follow from this one: its own correlation id, or else its id.
func Correlation(a Attributes) string {
	if id := a.CorrelationID(); id != "" {
		return id
	}
	return a.ID()
}
