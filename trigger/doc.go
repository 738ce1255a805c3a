// Package trigger runs a function for each message of a Redis pub/sub channel, or for each entry of a stream, through
// whatever happens to the connection. It needs no router and no transaction, and works with both.
//
//	r := trigger.New(trigger.Config{
//		Function:  "send-mail",
//		Run:       func(ctx context.Context, msg *message.RawMessage) error { … },
//		Connector: trigger.Connector{URL: "redis://localhost:6379"},
//		Mode:      trigger.ModeStream, Stream: "mails", Group: "mailer",
//	})
//	err := r.Run(ctx)
//
// A stream is read at least once: an entry is acked when the function has returned without error, and before that stays
// pending, to be tried again here or elsewhere. Pub/sub is fire and forget: messages that are published while nobody
// listens are lost, and Stats counts for how long nobody listened.
//
// A Runtime goes through the states of one table, and runs from it. docs/trigger.md draws it and tells what
// each state means. A function may open a transaction of luatx whose commit acknowledges the entry: give the message to an
// Engine with luatx.Middleware.
package trigger
