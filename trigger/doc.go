// Package trigger runs a function for each message of a Redis pub/sub channel or each entry of a stream. It reconnects after
// failures. It needs no router and no transaction, and works with both.
//
//	r := trigger.New(trigger.Config{
//		Function:  "send-mail",
//		Run:       func(ctx context.Context, msg *message.RawMessage) error { … },
//		Connector: trigger.Connector{URL: "redis://localhost:6379"},
//		Mode:      trigger.ModeStream, Stream: "mails", Group: "mailer",
//	})
//	err := r.Run(ctx)
//
// Streams are read at least once. An entry is acked when the function has returned without an error. Until then it stays pending,
// and this process or another one retries it. Pub/sub is fire and forget: messages that are published while no connection is
// subscribed are lost, and Stats counts these gaps.
//
// A Runtime is a state machine with one table of transitions, which docs/trigger.md draws and explains. A function may run a
// transaction of luatx whose commit acknowledges the entry: pass the message to an Engine with luatx.Middleware.
package trigger
