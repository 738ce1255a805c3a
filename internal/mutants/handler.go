package main

// handlerMutants break what keeps the operator's HTTP from doing harm.
var handlerMutants = []Mutant{
	{
		Name: "handler-asks-no-authorizer", File: "admin/handler_guard.go", Package: "admin", Test: "^TestGuards$",
		Old: `if c.who, err = c.h.cfg.Authorize(c.r); !errors.Is(err, ErrUnknown) {`, New: `if c.who, _ = c.h.cfg.Authorize(c.r); !errors.Is(err, ErrUnknown) {`,
		Why: "who was refused is served",
	},
	{
		Name: "handler-changes-by-get", File: "admin/handler_routes.go", Package: "admin", Test: "^TestGuards$",
		Old: `if r.method == c.r.Method ||`, New: `if r.method == c.r.Method || c.r.Method == http.MethodGet ||`,
		Why: "a link or an image re-arms",
	},
	{
		Name: "handler-fixes-where-it-checks", File: "admin/handler_look.go", Package: "admin", Test: "^TestGetChangesNothing$",
		Old: `range c.op.Check(`, New: `range c.op.Fix(`,
		Why: "a look changes shards",
	},
	{
		Name: "handler-takes-other-origins", File: "admin/handler.go", Package: "admin", Test: "^TestGuards$",
		Old: `c.h.origins.Check(c.r); err != nil {`, New: `c.h.origins.Check(c.r); err != nil && c.w == nil {`,
		Why: "a page elsewhere acts with the browser's credentials",
	},
	{
		Name: "handler-lets-viewers-change", File: "admin/handler.go", Package: "admin", Test: "^TestRights$",
		Old: `case c.who.May < route.needs:`, New: `case c.who.May < MayView:`,
		Why: "who may look may discard",
	},
	{
		Name: "handler-acts-in-its-own-name", File: "admin/handler.go", Package: "admin", Test: "^TestActs$/^redis$",
		Old: `c.op = c.h.op.As(c.who.Name)`, New: `c.op = c.h.op`,
		Why: "the audit does not say who",
	},
	{
		Name: "handler-skips-redaction", File: "admin/handler_events.go", Package: "admin", Test: "^TestRedaction$/^redis$",
		Old: `return h.cfg.Redact(e, p)`, New: `_ = h.cfg.Redact(e, p)`,
		Why: "card numbers are shown",
	},
	{
		Name: "handler-exports-what-is-redacted", File: "admin/handler_events.go", Package: "admin", Test: "^TestRedaction$/^redis$",
		Old: `case h.cfg.Redact != nil:`, New: `case h.cfg.Redact != nil && c == nil:`,
		Why: "card numbers are downloaded",
	},
	{
		Name: "handler-shows-payloads-unasked", File: "admin/handler_events.go", Package: "admin", Test: "^TestRedaction$/^redis$",
		Old: `case !data || len(p.Data) == 0:`, New: `case len(p.Data) == 0:`,
		Why: "payloads are on the screen of whoever passes by",
	},
	{
		Name: "handler-means-all-by-default", File: "admin/handler_acts.go", Package: "admin", Test: "^TestContract$/^redis$",
		Old: `if f.String() == "all" && !m.All {`, New: `if f.String() == "all" && m.Filter == nil && !m.All {`,
		Why: "an empty filter discards everything",
	},
	{
		Name: "handler-takes-misspelt-filters", File: "admin/handler_query.go", Package: "admin", Test: "^TestContract$/^redis$",
		Old: `decoder.DisallowUnknownFields()`, New: ``,
		Why: "a misspelt filter means more than it says",
	},
	{
		Name: "handler-skips-a-shard", File: "outbox/filter.go", Package: "admin", Test: "^TestPages$/^redis$",
		Old: `if edge.Slot < first {`, New: `if edge.Slot <= first {`,
		Why: "the next page misses the rest of the shard",
	},
	{
		Name: "handler-starts-any-number", File: "admin/handler_operations.go", Package: "admin", Test: "^TestOperationsAreBounded$",
		Old: `if os.running == os.most {`, New: `if os.running < 0 {`,
		Why: "clicks pile up work",
	},
	{
		Name: "handler-reads-any-body", File: "admin/handler_guard.go", Package: "admin", Test: "^TestRequestLimits$",
		Old: `http.MaxBytesReader(c.w, c.r.Body, c.h.cfg.BodyLimit)`, New: `http.MaxBytesReader(c.w, c.r.Body, 1<<40)`,
		Why: "one request fills the memory",
	},
	{
		Name: "serve-needs-no-token", File: "cmd/luatx/serve.go", Package: "cmd/luatx", Test: "^TestServe$",
		Old: `case !forThisMachine(o.listen):`, New: `case o.listen == "":`,
		Why: "everybody in the network is the operator",
	},
}
