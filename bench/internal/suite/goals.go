package suite

// Goal is the goal of a figure.
type Goal struct {
	// Figure is its name in the JSON.
	Figure string
	// The description of the figure in the report.
	What string
	// Bound is the minimum of the figure, or the maximum if Most is set. 0 means no bound.
	Bound float64
	Most  bool
}

// Goals returns the figures of a full run.
func Goals() []Goal {
	return []Goal{
		{"commit_c1_vs_three_step", "commits per second with one caller, relative to pipeline mode", 1.6, false},
		{"commit_c8_vs_three_step", "the same with 8 callers", 1.2, false},
		{"commit_rtt1ms_vs_three_step", "the same with one caller and a round trip of 1 ms", 2.6, false},
		{"commit_c64_vs_three_step", "the same with 64 callers on loopback", 2.4, false},
		{"server_cpu_c64_vs_three_step", "server CPU time per transaction with 64 callers, relative to pipeline mode", .45, true},
		{"server_cpu_unbatched_vs_three_step", "the same if each transaction is alone in its script", .95, true},
		{"server_cpu_unbatched_vs_handwritten", "server CPU time of a transaction alone in its script, relative to a handwritten script", 1.6, true},
		{"commit_10kb_vs_three_step", "commits per second with events of 10 KB and 64 callers, relative to pipeline mode", 1.4, false},
		{"server_cpu_10kb_vs_three_step", "server CPU time per transaction with events of 10 KB, relative to pipeline mode", .95, true},
		{"commit_100kb_vs_three_step", "commits per second with events of 100 KB and 64 callers, relative to pipeline mode", .95, false},
		{"server_cpu_100kb_vs_three_step", "server CPU time per transaction with events of 100 KB, relative to pipeline mode", 1.3, true},
		{"server_cpu_3masters_vs_one", "server CPU time per transaction on 3 masters with 16 tags, relative to one master", 1.25, true},
		{"consume_vs_three_step", "messages per second that are consumed, committed and acknowledged: the batch consumer, relative to `stack.Pipelined` with 16 workers", 3.3, false},
		{"way_vs_asynq", "messages per second from end to end with 64 in flight, relative to asynq", 6, false},
		{"way_vs_watermill", "the same, relative to watermill-redisstream with a deduplicator", 4, false},
		{"relay_vs_stream_loop", "events per second of a relay that drains a backlog, relative to a loop of XREADGROUP 100 and XACK with XDEL", .9, false},
		{"relay_vs_one_by_one", "the same, relative to a loop that handles one event at a time", 10, false},
		{"inline_p50_vs_commit", "median time from the reply to a commit until the event is published inline, relative to the commit's round trip", 1, true},
		{"other_process_p99_ms", "99th percentile of the time from the reply to a commit until another process publishes the event, in ms", 10, true},
		{"sweep_core_percent", "share of a server core for sweeping 16,384 empty shards, in %", 1, true},
		{"inbox_bytes", "bytes per id of 36 characters in an inbox with 1 million ids", 100, true},
		{"instructions_alone_k", "thousand server instructions for a transaction alone in its compiled script", 150, true},
		{"instructions_batch16_k", "the same in a batch of 16", 80, true},
		{"instructions_general_alone_k", "the same alone in the general script", 240, true},
		{"instructions_general_batch16_k", "the same in a batch of 16 in the general script", 120, true},
		{"instructions_relay_k", "thousand server instructions for claiming and settling an event with a derived id", 32, true},
		{"allocs_over_goredis", "client allocations per transaction in addition to those of go-redis", 12, true},
	}
}

// Met reports whether a value reaches the goal.
func (g Goal) Met(value float64) bool {
	switch {
	case g.Bound == 0:
		return true
	case g.Most:
		return value <= g.Bound
	default:
		return value >= g.Bound
	}
}
