package main

// amqpMutants break the ways to and from RabbitMQ.
var amqpMutants = []Mutant{
	{
		Name: "amqp-success-without-a-confirm", File: "contrib/amqp/publish.go", Package: "contrib/amqp", Test: "^TestUnconfirmed$",
		Old: `case i >= len(sent) || !isDone(sent[i].Done()), !sent[i].Acked() && closed:`,
		New: `case i >= len(sent):`,
		Why: "what the broker never confirmed counts as nacked, or sent, and not as an outage",
	},
	{
		Name: "amqp-a-nack-is-a-success", File: "contrib/amqp/publish.go", Package: "contrib/amqp", Test: "^TestAnswers$",
		Old: `case !sent[i].Acked():`, New: `case false:`,
		Why: "an event that a full queue has refused is lost",
	},
	{
		Name: "amqp-not-mandatory", File: "contrib/amqp/publish.go", Package: "contrib/amqp", Test: "^TestPublisher$/^unroutable$",
		Old: `ch.publish(ctx, letters, !b.p.cfg.NoMandatory)`, New: `ch.publish(ctx, letters, b.p.cfg.NoMandatory)`,
		Why: "an event that no queue is bound for is lost in silence",
	},
	{
		Name: "amqp-one-event-refuses-the-batch", File: "contrib/amqp/publish.go", Package: "contrib/amqp", Test: "^TestPublisher$/^no_exchange$",
		Old: `letters, size = unsure, 1`, New: `b.answer(unsure, refusal(unsure[0], exception))`,
		Why: "an exchange that does not exist parks events to others",
	},
	{
		Name: "amqp-not-persistent", File: "contrib/amqp/convert.go", Package: "contrib/amqp", Test: "^TestProperties$",
		Old: `amqp091.Persistent`, New: `amqp091.Transient`,
		Why: "a confirmed event is gone when the broker restarts",
	},
	{
		Name: "amqp-blocked-for-ever", File: "contrib/amqp/link.go", Package: "contrib/amqp", Test: "^TestBlocked$",
		Old: `case !active && was:`, New: `case false:`,
		Why: "a broker that was short of memory once gets no event until the process restarts",
	},
	{
		Name: "amqp-acknowledged-before-the-commit", File: "contrib/amqp/subscription.go", Package: "contrib/amqp", Test: "^(TestWholeWay|TestReconnect|TestStop)$",
		Old: `ch.Consume(s.cfg.Queue, next.tag, false,`, New: `ch.Consume(s.cfg.Queue, next.tag, true,`,
		Why: "a message whose handler fails, or whose process dies, is lost",
	},
	{
		Name: "amqp-refused-messages-are-dropped", File: "contrib/amqp/settle.go", Package: "contrib/amqp", Test: "^TestWithoutDeadLetters$",
		Old: `if !s.cfg.DeadLetters {`, New: `if false {`,
		Why: "without a dead-letter exchange the broker forgets what was refused",
	},
	{
		Name: "amqp-a-lane-overtakes", File: "contrib/amqp/publish.go", Package: "contrib/amqp", Test: "^TestAnswers$",
		Old: `b.errs[l.at] = relay.Later(errBehind, 0)`, New: `now = append(now, l)`,
		Why: "an event goes out before the one in front of it",
	},
}
