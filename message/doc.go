// Package message is the vocabulary of everything that handles messages: CloudEvents attributes and data with an
// acking, handlers, and the Router and Engine that run them. It needs the standard library only.
//
// # Messages
//
// A [Message] holds data and [Attributes], by the names of CloudEvents 1.0. A [RawMessage] is one whose data is encoded.
// MarshalJSON and UnmarshalJSON write and read the structured JSON format. WithValue gives a message values that stay
// inside this process; Context makes both visible to whatever a handler calls.
//
// # Settling
//
// The [Acking] of a message knows how its source is told. A message is settled exactly once, and the first call wins:
//
//	Ack            handled: the source may forget it
//	Nack(err)      not handled: the source delivers it again; Permanent and RetryAfter say how the error wants that
//	Release        neither: it belongs to somebody else by now
//	Acknowledged   acked, but the source knows already, because the ack was part of a commit
//
// Settled is closed afterwards. A shared acking ([NewSharedAcking]) settles one input by many outputs. On a message
// without acking every one of these calls does nothing and reports false.
//
// # Handlers
//
// [NewHandler] makes a handler of a function that takes a message with data of a Go type; [NewCommandHandler] of one that
// knows no messages at all, a command in and events out. The event type that a handler takes is the name of the Go type,
// OrderPlaced being "order.placed", or what its [Naming] or config says.
//
// # Router
//
// A [Router] chooses the handler before any middleware runs, so that middlewares can ask for its name and for the
// [AckStrategy] (HandlerNameFromContext, AckStrategyFromContext). Acking is outermost:
//
//	acking → first middleware → … → last middleware → handler
//
// What a middleware commits is therefore committed before its input is acked, and a commit that fails is a nack. A panic
// anywhere is a [PanicError] and a nack; a message that no handler takes is an [ErrNoHandler] and a nack. Nothing is
// dropped in silence: what cannot be returned goes to PipeConfig.ErrorHandler, or to the log.
//
// An [Engine] is a Router between channels of encoded messages: subscribers before it, publishers behind it.
package message
