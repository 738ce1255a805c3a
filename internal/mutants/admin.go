package main

// adminMutants break what an operator's commands rest on.
var adminMutants = []Mutant{
	{
		Name: "admin-forgets-without-audit", File: "lua/forget.lua", Package: "admin", Test: "^TestForget$/^redis$",
		Old: `return finish('forget')`, New: `return {NOW, table.concat(answers)}`,
		Why: "nobody knows why a message counted twice",
	},
	{
		Name: "admin-forgets-one-generation", File: "lua/forget.lua", Package: "admin", Test: "^TestForgetWholly$/^redis$",
		Old: `ipairs({'inbox:a', 'inbox:b'})`, New: `ipairs({'inbox:a'})`,
		Why: "a message that is to be applied again is a duplicate still",
	},
	{
		Name: "admin-forgets-and-keeps-replies", File: "lua/forget.lua", Package: "admin", Test: "^TestForgetWholly$/^redis$",
		Old: `ipairs({'results', 'results:b', 'broken'})`, New: `ipairs({'broken'})`,
		Why: "a retry hears the replies of another run",
	},
	{
		Name: "admin-forgets-in-a-foreign-shard", File: "internal/script/set.go", Package: "admin", Test: "^TestForgetWholly$/^redis$",
		Old: `lua.Source("_time", "_outbox", "_owned", "_audit", "forget")`, New: `lua.Source("_time", "_outbox", "_audit", "forget")`,
		Why: "an operator with a wrong keyspace changes another service's inbox",
	},
	{
		Name: "admin-forgets-without-a-reason", File: "admin/inbox.go", Package: "admin", Test: "^TestForget$/^redis$",
		Old: `case reason == "" || len(reason) > maxReason:`, New: `case len(reason) > maxReason:`,
		Why: "the audit says who, and not why",
	},
	{
		Name: "admin-drained-with-parked-events", File: "admin/drain.go", Package: "admin", Test: "^TestDrain$/^redis$",
		Old: `if l.Pending+l.Waiting+l.Parked > 0 ||`, New: `if l.Pending+l.Waiting > 0 ||`,
		Why: "parked events stay behind under the old number of partitions",
	},
	{
		Name: "admin-drained-before-it-is-read", File: "admin/streams.go", Package: "admin", Test: "^TestDrain$/^redis$",
		Old: `return len(s.Groups) > 0 || s.Length == 0`, New: `return true`,
		Why: "input that nobody has read stays behind",
	},
	{
		Name: "admin-tells-twice", File: "admin/tail.go", Package: "admin", Test: "^TestTail$/^redis$",
		Old: `if e.ID != "" && t.seen[s] {`, New: `if false {`,
		Why: "every look repeats the last ten seconds",
	},
	{
		Name: "admin-tells-of-before", File: "admin/tail.go", Package: "admin", Test: "^TestTail$/^redis$",
		Old: "	if since.Before(t.begun) {\n		since = t.begun\n	}\n", New: "",
		Why: "old events look as if they were parked now",
	},
	{
		Name: "admin-doctor-misses-eviction", File: "admin/doctor_server.go", Package: "admin", Test: "^TestDoctor$",
		Old: `if policy != "" && policy != "noeviction" {`, New: `if policy == "allkeys-random" {`,
		Why: "a server that forgets ids passes for sound",
	},
	{
		Name: "admin-doctor-misses-rights", File: "lua/rights.lua", Package: "admin", Test: "^TestDoctor$",
		Old: `if ok then return may end`, New: `if ok then return true end`,
		Why: "a user who may not run what scripts call passes for sound",
	},
	{
		Name: "admin-doctor-misses-layout", File: "admin/doctor_shards.go", Package: "admin", Test: "^TestDoctor$",
		Old: `if owner != o.scripts.Identity() {`, New: `if false {`,
		Why: "two keyspaces in one namespace pass for sound",
	},
	{
		Name: "admin-discards-without-yes", File: "cmd/luatx/parkedacts.go", Package: "cmd/luatx", Test: "^TestParkedWalk$/^redis$",
		Old: `		if !yes {
			continue
		}`, New: ``,
		Why: "a look at what would be removed removes it",
	},
	{
		Name: "admin-discards-all-by-default", File: "cmd/luatx/parkedacts.go", Package: "cmd/luatx", Test: "^TestParkedWalk$/^redis$",
		Old: `case f.String() == "all" && !*all:`, New: `case false && !*all:`,
		Why: "a forgotten filter removes everything",
	},
	{
		Name: "admin-rearms-without-yes", File: "cmd/luatx/parkedacts.go", Package: "cmd/luatx", Test: "^TestParkedWalk$/^redis$",
		Old: `o.DryRun = len(ids) == 0 && !*yes`, New: `o.DryRun = false && !*yes`,
		Why: "a preview of what a filter means sends it",
	},
	{
		Name: "admin-forgets-without-yes", File: "cmd/luatx/inbox.go", Package: "cmd/luatx", Test: "^TestInboxCommands$/^redis$",
		Old: `	case !yes:
		if err`, New: `	case !yes && m == nil:
		if err`,
		Why: "a look at a message lets it count twice",
	},
	{
		Name: "admin-repairs-in-a-dry-run", File: "cmd/luatx/care.go", Package: "cmd/luatx", Test: "^TestRepairCommand$/^redis$",
		Old: `	if fix {
		look`, New: `	if fix || !fix {
		look`,
		Why: "a look changes what it looks at",
	},
	{
		Name: "admin-repairs-without-a-retention", File: "cmd/luatx/care.go", Package: "cmd/luatx", Test: "^TestRepairCommand$/^redis$",
		Old: `case s.retention <= 0:`, New: `case s.retention < 0:`,
		Why: "a service that keeps ids for a week loses them after a day",
	},
	{
		Name: "admin-export-overwrites", File: "cmd/luatx/parked.go", Package: "cmd/luatx", Test: "^TestExportToFile$/^redis$",
		Old: `os.O_WRONLY|os.O_CREATE|os.O_EXCL`, New: `os.O_WRONLY|os.O_CREATE|os.O_TRUNC`,
		Why: "the only copy of what was discarded is lost",
	},
	{
		Name: "admin-shows-bodies", File: "cmd/luatx/parked.go", Package: "cmd/luatx", Test: "^TestParkedWalk$/^redis$",
		Old: `if body && len(e.Body) > 0 {`, New: `if (body || !body) && len(e.Body) > 0 {`,
		Why: "what is nobody's business stands on a screen",
	},
	{
		Name: "admin-prints-control-characters", File: "cmd/luatx/print.go", Package: "cmd/luatx", Test: "^TestParkedWalk$/^redis$",
		Old: `if unicode.IsPrint(r) {`, New: `if r > 0 || unicode.IsPrint(r) {`,
		Why: "an error's text moves the cursor of a terminal",
	},
}

// pauseMutants break what a pause of a destination is.
var pauseMutants = []Mutant{
	{
		Name: "pause-publishes-all-the-same", File: "relay/pause.go", Package: "admin", Test: "^TestPause$/^redis$",
		Old: `if known[msg.Destination()] || known[scopeOf(r.publisher, msg)] {`, New: `if known[scopeOf(r.publisher, msg)] {`,
		Why: "what an operator has paused goes out",
	},
	{
		Name: "pause-knows-no-scope", File: "relay/pause.go", Package: "admin", Test: "^TestPauseEnds$/^redis$",
		Old: `if known[msg.Destination()] || known[scopeOf(r.publisher, msg)] {`, New: `if known[msg.Destination()] {`,
		Why: "a host that is paused under its name in the log is sent to",
	},
	{
		Name: "pause-begins-too-late", File: "relay/relay.go", Package: "admin", Test: "^TestPause$/^redis$",
		Old: "	r.lookAtPauses(ctx)\n", New: "",
		Why: "a relay that is restarted publishes to paused destinations at first",
	},
	{
		Name: "pause-spins", File: "relay/pause.go", Package: "admin", Test: "^TestPause$/^redis$",
		Old: `wait := script.HeldFor/2 + rand.N(script.HeldFor/2)`, New: `wait := rand.N(script.HeldFor / 1000)`,
		Why: "relays claim what is paused over and over",
	},
	{
		Name: "pause-costs-attempts", File: "relay/pause.go", Package: "admin", Test: "^TestPause$/^redis$",
		Old: `What: "hold", Number`, New: `What: "failed", Number`,
		Why: "a long pause parks what waits for it",
	},
	{
		Name: "pause-wakes-the-scheduled", File: "lua/unhold.lua", Package: "admin", Test: "^TestUnhold$/^redis$",
		Old: `return tonumber(score) % 1 ~= 0 end`, New: `return score end`,
		Why: "the end of a pause publishes what is scheduled for later",
	},
	{
		Name: "pause-ends-for-some", File: "lua/unhold.lua", Package: "admin", Test: "^TestUnhold$/^redis$",
		Old: `if #page < 2 * LIMIT then return {NOW, n, ''} end`, New: `if n >= 0 then return {NOW, n, ''} end`,
		Why: "what was held waits for ten minutes more",
	},
	{
		Name: "pause-is-never-seen-to-end", File: "relay/pause.go", Package: "admin", Test: "^TestPauseEnds$/^redis$",
		Old: `case old == nil && now.Sub(pause.Until) < script.HeldFor:`, New: `case old == nil && now.Before(pause.Until):`,
		Why: "events of a pause that ended while no relay ran wait for ten minutes more",
	},
	{
		Name: "pause-forgets-what-it-knew", File: "relay/pause.go", Package: "admin", Test: "^TestPauseUnread$",
		Old: "		r.pauses.failed = true\n", New: "		r.pauses.failed = true\n		r.pauses.take(nil, now)\n",
		Why: "a relay that cannot read the pauses ends them",
	},
	{
		Name: "pause-without-a-record", File: "lua/pause.lua", Package: "admin", Test: "^TestPausesAreRecorded$/^redis$",
		Old: `return finish('pause')`, New: `return {NOW, table.concat(answers)}`,
		Why: "nobody knows who stopped the events",
	},
	{
		Name: "pause-has-no-end", File: "internal/script/pause.go", Package: "admin", Test: "^TestPauseEnds$/^redis$",
		Old: `return p.Until.IsZero() || p.Until.After(now)`, New: `return p.Since.Before(now.Add(time.Minute))`,
		Why: "a pause for an hour lasts until somebody thinks of it",
	},
}

// luatxtestMutants break what users' tests rely on.
var luatxtestMutants = []Mutant{
	{
		Name: "luatxtest-crashes-too-early", File: "luatxtest/crash.go", Package: "luatxtest", Test: "^TestCrash$/^embedded$/^after_commit$",
		Old: "	case AfterCommit:\n		return e.script(\"commit\"), respproxy.CutReply()", New: "	case AfterCommit:\n		return e.script(\"commit\"), respproxy.CutRequest()",
		Why: "a test of what follows a commit tests nothing",
	},
	{
		Name: "luatxtest-lives-on", File: "luatxtest/crash.go", Package: "luatxtest", Test: "^TestCrashOfARelay$/^embedded$/^before_settle$",
		Old: "			return respproxy.CutRequest()\n		case match(cmd):", New: "			return respproxy.Pass()\n		case match(cmd):",
		Why: "a dead process tells that it has published",
	},
	{
		Name: "luatxtest-overlooks-data", File: "luatxtest/emitted.go", Package: "luatxtest", Test: "^TestRequireEmitted$",
		Old: `sameJSON(w.Data, e.Message.Data)`, New: `(w.Data != nil || sameJSON(w.Data, e.Message.Data))`,
		Why: "a wrong event passes for the right one",
	},
	{
		Name: "luatxtest-one-event-for-all", File: "luatxtest/emitted.go", Package: "luatxtest", Test: "^TestRequireEmitted$",
		Old: `if other, held := taken[at]; !held || find(other, tried) {`, New: `if taken != nil {`,
		Why: "one event passes for two",
	},
	{
		Name: "luatxtest-clock-stands", File: "luatxtest/env.go", Package: "luatxtest", Test: "^TestAdvance$",
		Old: `e.mini.SetTime(e.Now().Add(d))`, New: `e.mini.SetTime(e.Now())`,
		Why: "what is due later is never tested",
	},
}
