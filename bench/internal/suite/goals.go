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
		{"commit_c1_vs_three_step", "commits a second, one caller, to the pipeline mode", 1.6, false},
		{"commit_c8_vs_three_step", "the same with 8 callers", 1.2, false},
		{"commit_rtt1ms_vs_three_step", "the same with a round trip of 1 ms", 2.6, false},
		{"commit_c64_vs_three_step", "the same with 64 callers on loopback", 2.4, false},
		{"server_cpu_c64_vs_three_step", "server CPU of a transaction, 64 callers, to the pipeline mode", .45, true},
		{"server_cpu_unbatched_vs_three_step", "server CPU of a transaction alone in its script, 64 callers, to the pipeline mode", .95, true},
		{"server_cpu_unbatched_vs_handwritten", "server CPU of a transaction alone in its script, to a handwritten script", 1.6, true},
		{"commit_10kb_vs_three_step", "commits a second with events of 10 KB, 64 callers, to the pipeline mode", 1.4, false},
		{"server_cpu_10kb_vs_three_step", "their server CPU, to the pipeline mode", .95, true},
		{"commit_100kb_vs_three_step", "commits a second with events of 100 KB, 64 callers, to the pipeline mode", .95, false},
		{"server_cpu_100kb_vs_three_step", "their server CPU, to the pipeline mode", 1.3, true},
		{"server_cpu_3masters_vs_one", "server CPU a transaction on 3 masters with 16 tags, to one master", 1.25, true},
		{"consume_vs_three_step", "consume, transact, acknowledge: the batch consumer to `stack.Pipelined` with 16 workers", 3.3, false},
		{"way_vs_asynq", "the whole way, 64 in flight, to asynq", 6, false},
		{"way_vs_watermill", "the whole way, 64 in flight, to watermill-redisstream with a deduplicator", 4, false},
		{"relay_vs_stream_loop", "relay drain, to a loop of XREADGROUP 100 and XACK with XDEL", .9, false},
		{"relay_vs_one_by_one", "relay drain, to one event at a time", 10, false},
		{"inline_p50_vs_commit", "from the commit's reply to the publish, inline, p50, to the commit's round trip", 1, true},
		{"other_process_p99_ms", "from the commit's reply to the publish in another process, p99, ms", 10, true},
		{"sweep_core_percent", "a server core's share for sweeping 16,384 empty shards, %", 1, true},
		{"inbox_bytes", "bytes of an id of 36 characters in the inbox, at 1 million", 100, true},
		{"instructions_alone_k", "thousand instructions of the server for a transaction alone in its compiled script", 150, true},
		{"instructions_batch16_k", "the same in a batch of 16", 80, true},
		{"instructions_general_alone_k", "the same alone in the general script", 240, true},
		{"instructions_general_batch16_k", "the same in a batch of 16 in the general script", 120, true},
		{"instructions_relay_k", "thousand instructions of the server for claiming and settling an event whose id is derived", 32, true},
		{"allocs_over_goredis", "client allocations a transaction beyond go-redis' own", 12, true},
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
