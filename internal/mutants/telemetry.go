package main

// telemetryMutants break what traces and metrics say.
var telemetryMutants = []Mutant{
	{
		Name: "telemetry-parents-across-the-queue", File: "contrib/otel/process.go", Package: "contrib/otel", Test: "^TestOrder$",
		Old: `trace.WithLinks(t.links(msg.Attributes)...),`, New: ``,
		Why: "nobody finds where a message was made",
	},
	{
		Name: "telemetry-outputs-keep-the-inputs-context", File: "contrib/otel/process.go", Package: "contrib/otel", Test: "^TestOutputs$",
		Old: `return out != in && t.Extract`, New: `return false && t.Extract`,
		Why: "an event is linked to the producer of the command, past the handler that made it",
	},
	{
		Name: "telemetry-relay-replaces-the-origin", File: "contrib/otel/send.go", Package: "contrib/otel", Test: "^TestOrder$",
		Old: "for _, msg := range here {\n		if msg", New: "for _, msg := range messages {\n		if msg",
		Why: "a consumer is linked to the relay and not to the handler",
	},
	{
		Name: "telemetry-a-panic-leaves-no-span", File: "contrib/otel/process.go", Package: "contrib/otel", Test: "^TestProcessOfAPanic$",
		Old: `err = errors.New("panic")`, New: `err = nil`,
		Why: "a handler that panics looks as if it had done well",
	},
	{
		Name: "telemetry-scrapes-hammer-the-server", File: "contrib/prometheus/outbox.go", Package: "contrib/prometheus", Test: "^TestOutbox$",
		Old: `o.looked.IsZero() || time.Since(o.looked) >= o.cfg.MinInterval`, New: `o.cfg.MinInterval != 0`,
		Why: "every scrape of every process asks every shard",
	},
	{
		Name: "telemetry-labels-without-end", File: "contrib/prometheus/metrics.go", Package: "contrib/prometheus", Test: "^TestLabelsAreFew$",
		Old: `if len(l.seen) >= l.most {`, New: `if false {`,
		Why: "an error that quotes an id makes a series for each",
	},
	{
		Name: "telemetry-outage-for-ever", File: "contrib/prometheus/observers.go", Package: "contrib/prometheus", Test: "^TestOutageOutOfOrder$",
		Old: `if !o.At.After(last) {`, New: `if false && last.IsZero() {`,
		Why: "an alert of an outage that is over never ends",
	},
	{
		Name: "telemetry-alert-on-nothing", File: "contrib/prometheus/alerts.yaml", Package: "contrib/prometheus", Test: "^TestAlerts$",
		Old: `expr: max by (namespace) (luatx_outbox_up) == 0`, New: `expr: max by (namespace) (luatx_outbox_alive) == 0`,
		Why: "an alert that can never fire",
	},
	{
		Name: "telemetry-stale-outbox", File: "contrib/prometheus/outbox.go", Package: "contrib/prometheus", Test: "^TestOutbox$",
		Old: "		all = nil\n		gauge(o.up, 0)\n", New: "		gauge(o.up, 1)\n",
		Why: "an outbox that cannot be looked at seems well",
	},
}
