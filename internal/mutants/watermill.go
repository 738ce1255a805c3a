package main

// watermillMutants break what Watermill's handlers and relays are promised.
var watermillMutants = []Mutant{
	{
		Name:    "watermill-counts-twice",
		File:    "contrib/watermill/middleware.go",
		Old:     `inbox.Middleware(inbox.Config{Scope: scope}), outbox`,
		New:     `message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc { _ = inbox.Config{}; return next }), outbox`,
		Package: "contrib/watermill",
		Test:    "^TestRouter$/^redis$",
		Why:     "a message that is delivered again is applied again",
	},
	{
		Name:    "watermill-lane-overtakes",
		File:    "contrib/watermill/relay.go",
		Old:     `held[lane] = errs[i]`,
		New:     `_ = lane`,
		Package: "contrib/watermill",
		Test:    "^TestRelayAnswers$",
		Why:     "an event overtakes the refused one before it in its lane",
	},
}
