package main

// idempotencyMutants break what a request under a key promises.
var idempotencyMutants = []Mutant{
	{
		Name:    "http-key-forgotten-with-its-answer",
		File:    "idempotency/middleware.go",
		Old:     `	return []luatx.Option{luatx.WithID("http:" + c.id)}`,
		New:     `	return nil`,
		Package: "idempotency",
		Test:    "^TestAnswerGone$",
		Why:     "a request whose answer was evicted is applied again",
	},
	{
		Name:    "http-key-for-anything",
		File:    "idempotency/middleware.go",
		Old:     `c.answer.Request != c.asked`,
		New:     `c.answer.Request == ""`,
		Package: "idempotency",
		Test:    "^TestWhatIsRefused$",
		Why:     "another request is told the answer of the first, and is never applied",
	},
	{
		Name:    "http-error-committed",
		File:    "idempotency/response.go",
		Old:     `r.Status >= http.StatusInternalServerError`,
		New:     `r.Status < 0`,
		Package: "idempotency",
		Test:    "^TestFailuresLeaveNothing$",
		Why:     "half of a failed handler is written, and its error is kept for a day",
	},
	{
		Name:    "http-keys-shared",
		File:    "idempotency/middleware.go",
		Old:     `digest(scope, key)`,
		New:     `digest("", key)`,
		Package: "idempotency",
		Test:    "^TestScopes$",
		Why:     "a tenant reads the answer that was given to another",
	},
	{
		Name:    "http-answer-not-kept",
		File:    "idempotency/middleware.go",
		Old:     `	return luatx.Queued(tx.Pipeline().Set(ctx, key, text, c.t.Config().Retention))`,
		New:     `	return luatx.Queued(tx.Pipeline().Set(ctx, key+"x", text, c.t.Config().Retention))`,
		Package: "idempotency",
		Test:    "^TestARequestCountsOnce$",
		Why:     "a repeated request is told that its answer is gone",
	},
}
