package service

import (
	"context"
	"fmt"

	"github.com/luatx/luatx/message"
)

// Handler is a handler of the service, under a name of its own.
type Handler struct {
	// Name is unique in the service.
	Name string
	// Matcher chooses among the messages of the handler's event type. Defaults to nil: all of them.
	Matcher message.Matcher
	// Handler is made by message.NewHandler or message.NewCommandHandler.
	Handler message.Handler
}

// Command returns the Handler of a function that takes a command and returns events, as message.NewCommandHandler makes it
// with a zero config. For example, a type PlaceOrder takes messages of type "place.order". The source of the events is "/"
// and the name.
func Command[C, E any](name string, fn func(ctx context.Context, cmd C) ([]E, error)) Handler {
	return Handler{Name: name, Handler: message.NewCommandHandler(fn, message.CommandHandlerConfig{})}
}

// engine returns the Engine with the middlewares and the handlers.
func (c Config) engine(stack message.Middleware, handlers []Handler) (*message.Engine, error) {
	engine := message.NewEngine(c.Engine)
	for _, mw := range [][]message.Middleware{c.Outside, {stack}, c.Inside} {
		if err := engine.Router().Use(mw...); err != nil {
			return nil, fmt.Errorf("service: middlewares: %w", err)
		}
	}
	for _, h := range handlers {
		if err := engine.AddHandler(h.Name, h.Matcher, h.Handler); err != nil {
			return nil, fmt.Errorf("service: handler %q: %w", h.Name, err)
		}
	}
	if err := engine.Check(); err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	return engine, nil
}
