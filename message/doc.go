// Package message defines messages with CloudEvents attributes, handlers, and the Router and Engine that run handlers. It needs
// only the standard library.
//
// # Messages
//
// A [Message] holds data and [Attributes] with the names of CloudEvents 1.0. A [RawMessage] is a message with encoded data.
// MarshalJSON and UnmarshalJSON write and read the structured JSON format. WithValue adds values that stay inside this process.
// Context makes the message and these values visible to the code that a handler calls.
//
// # Settling
//
// The [Acking] of a message notifies the source of its settlement. A message is settled exactly once, by the first of these
// calls:
//
//	Ack            handled: the source may forget the message
//	Nack(err)      not handled: the source delivers it again, as Permanent or RetryAfter in err requests
//	Release        neither: it belongs to another consumer now
//	Acknowledged   acked, but the source knows already, because the ack was part of a commit
//
// The channel Settled is closed afterwards. A shared acking ([NewSharedAcking]) settles one input when several outputs are
// settled. On a message without an acking, these calls do nothing and return false.
//
// # Handlers
//
// [NewHandler] creates a handler from a function that takes a message with data of a Go type. [NewCommandHandler] creates one
// from a function without messages, which takes a command and returns events. The event type of a handler is the name of the Go
// type, such as "order.placed" for OrderPlaced, or the name from its [Naming] or config.
//
// # Router
//
// A [Router] chooses the handler before any middleware runs, so that middlewares can use its name and the [AckStrategy]
// (HandlerNameFromContext, AckStrategyFromContext). Acking is outermost:
//
//	acking → first middleware → … → last middleware → handler
//
// A middleware therefore commits before the Router acks the input, and a failed commit leads to a nack. A panic becomes a
// [PanicError] and a nack. A handler that ends its goroutine with runtime.Goexit, as testing.T.FailNow does, leads to a nack, and
// another worker continues. A message that no handler takes leads to [ErrNoHandler] and a nack. Errors are never dropped: an error
// that cannot be returned goes to PipeConfig.ErrorHandler, or to the log.
//
// An [Engine] is a Router between channels of encoded messages, with subscribers before it and publishers behind it.
package message
