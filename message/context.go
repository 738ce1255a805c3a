package message

import "context"

// carrier is a message of whatever type, as its context sees it.
type carrier interface {
	value(key any) (any, bool)
	attributes() Attributes
}

// route is what the router knows about a message's way; one is made a handler, not a message.
type route struct {
	handler   string
	strategy  AckStrategy
	marshaler Marshaler // the Engine's; nil without one
	end       bool      // nobody takes outputs
}

// messageContext answers for a message first and for its parent then. It looks at the message itself, so a value that
// a middleware adds later is seen as well.
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

// Context returns a context for handling the message: the message and its attributes can be got from it, its in-process
// values come before the parent's, and it ends with context.DeadlineExceeded at the message's expiry time.
// Without an expiry time nothing needs releasing; with one a timer is held until then or until the parent ends,
// so cancel the parent when the work is done (a Router does that by itself).
func (m *TypedMessage[T]) Context(parent context.Context) context.Context {
	ctx, _ := m.routeContext(parent, nil)
	return ctx
}

// routeContext is Context with the router's knowledge, and with a cancel function that lets go of the timer.
func (m *TypedMessage[T]) routeContext(parent context.Context, r *route) (context.Context, context.CancelFunc) {
	cancel := noCancel
	if expiry, ok := m.ExpiryTime(); ok {
		parent, cancel = context.WithDeadline(parent, expiry)
	}
	return &messageContext{Context: parent, msg: m, route: r}, cancel
}

// noCancel is no literal in routeContext, which would cost an allocation in a generic method.
var noCancel context.CancelFunc = func() {}

// MessageFromContext returns the message that is being handled.
func MessageFromContext(ctx context.Context) (*Message, bool) {
	m, ok := ctx.Value(messageKey).(*Message)
	return m, ok
}

// RawMessageFromContext returns the encoded message whose context this is.
func RawMessageFromContext(ctx context.Context) (*RawMessage, bool) {
	m, ok := ctx.Value(rawMessageKey).(*RawMessage)
	return m, ok
}

// AttributesFromContext returns the attributes of the message that is being handled.
func AttributesFromContext(ctx context.Context) (Attributes, bool) {
	a, ok := ctx.Value(attributesKey).(Attributes)
	return a, ok
}

// AckStrategyFromContext returns how the Router that handles the message acknowledges it; false outside of a Router.
func AckStrategyFromContext(ctx context.Context) (AckStrategy, bool) {
	if r, ok := ctx.Value(routeKey).(*route); ok {
		return r.strategy, true
	}
	return 0, false
}

// HandlerNameFromContext returns the name of the handler that the Router has chosen; false outside of a Router.
func HandlerNameFromContext(ctx context.Context) (string, bool) {
	if r, ok := ctx.Value(routeKey).(*route); ok {
		return r.handler, true
	}
	return "", false
}
