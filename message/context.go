package message

import (
	"context"
	"time"
)

// carrier is the part of a message that its context uses, independent of the type of its data.
type carrier interface {
	value(key any) (any, bool)
	attributes() Attributes
}

// route is what the Router knows about the handling of a message. There is one for each handler, not for each message.
type route struct {
	handler   string
	strategy  AckStrategy
	marshaler Marshaler // the Engine's; nil without an Engine
	end       bool      // the caller accepts no outputs
}

// messageContext returns the values of a message before those of its parent. It reads the message itself, so it also returns a
// value that a middleware adds later.
type messageContext struct {
	context.Context
	msg   carrier
	route *route
}

type contextKey int

const (
	messageKey contextKey = iota
	rawMessageKey
	attributesKey
	routeKey
)

// Value implements context.Context.
func (c *messageContext) Value(key any) any {
	switch key {
	case messageKey:
		if m, ok := c.msg.(*Message); ok {
			return m
		}
	case rawMessageKey:
		if m, ok := c.msg.(*RawMessage); ok {
			return m
		}
	case attributesKey:
		return c.msg.attributes()
	case routeKey:
		if c.route != nil {
			return c.route
		}
	default:
		if v, ok := c.msg.value(key); ok {
			return v
		}
	}
	return c.Context.Value(key)
}

// Context returns a context for handling the message. It holds the message, its attributes and its in-process values, which take
// precedence over the parent's. It ends with context.DeadlineExceeded at the message's expiry time. With an expiry time, a timer
// runs until then or until the parent ends, so cancel the parent when the work is done; a Router does so itself.
func (m *TypedMessage[T]) Context(parent context.Context) context.Context {
	ctx, _ := m.routeContext(parent, nil)
	return ctx
}

// routeContext is Context with the route, and with a cancel function that stops the timer. The context of an expired message does not
// end early, so that middlewares can settle the message that its handler will reject.
func (m *TypedMessage[T]) routeContext(parent context.Context, r *route) (context.Context, context.CancelFunc) {
	cancel := noCancel
	if expiry, ok := m.ExpiryTime(); ok && (r == nil || time.Now().Before(expiry)) {
		parent, cancel = context.WithDeadline(parent, expiry)
	}
	return &messageContext{Context: parent, msg: m, route: r}, cancel
}

// noCancel is a variable because a function literal in routeContext, a generic method, would need an allocation.
var noCancel context.CancelFunc = func() {}

// MessageFromContext returns the message that is being handled, and false if there is none.
func MessageFromContext(ctx context.Context) (*Message, bool) {
	m, ok := ctx.Value(messageKey).(*Message)
	return m, ok
}

// RawMessageFromContext returns the encoded message that ctx belongs to, and false if there is none.
func RawMessageFromContext(ctx context.Context) (*RawMessage, bool) {
	m, ok := ctx.Value(rawMessageKey).(*RawMessage)
	return m, ok
}

// AttributesFromContext returns the attributes of the message that is being handled, and false if there is none.
func AttributesFromContext(ctx context.Context) (Attributes, bool) {
	a, ok := ctx.Value(attributesKey).(Attributes)
	return a, ok
}

// AckStrategyFromContext returns the ack strategy of the Router that handles the message, and false outside of a Router.
func AckStrategyFromContext(ctx context.Context) (AckStrategy, bool) {
	if r, ok := ctx.Value(routeKey).(*route); ok {
		return r.strategy, true
	}
	return 0, false
}

// HandlerNameFromContext returns the name of the handler that the Router has chosen, and false outside of a Router.
func HandlerNameFromContext(ctx context.Context) (string, bool) {
	if r, ok := ctx.Value(routeKey).(*route); ok {
		return r.handler, true
	}
	return "", false
}
