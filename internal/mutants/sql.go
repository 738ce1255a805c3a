package main

// sqlMutants break what the stack on SQL databases rests on.
var sqlMutants = []Mutant{
	{
		Name: "sql-late-commit-skipped", File: "sqltx/claim.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^postgres$/^LateCommit$",
		Old: `o.published = FALSE AND o.parked = FALSE AND o.next_attempt_at`,
		New: `o.id > (SELECT COALESCE(MAX(p.id), 0) FROM %[1]s p WHERE p.published = TRUE) AND o.published = FALSE AND o.parked = FALSE AND o.next_attempt_at`,
		Why: "an event that commits after a later one was published is never published",
	},
	{
		Name: "sql-duplicate-runs", File: "sqltx/inbox.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^mariadb$/^Inbox$",
		Old: `if affected != 1 {`, New: `if affected == 0 {`,
		Why: "a message counts once for each delivery on MySQL",
	},
	{
		Name: "sql-inbox-takes-its-own-mark", File: "sqltx/inbox.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^sqlite$/^Inbox$",
		Old: `if ctx.Value(key) != nil {`, New: `if false {`,
		Why: "every message passes for a duplicate where the inbox stands twice",
	},
	{
		Name: "sql-failed-handler-commits", File: "sqltx/tx.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^sqlite$/^Tx$",
		Old: "scopeKey{}, s)); err != nil {\n\t\treturn err\n", New: "scopeKey{}, s)); err != nil {\n\t\treturn errors.Join(err, s.commit(ctx))\n",
		Why: "half of what a failed handler did is there",
	},
	{
		Name: "sql-savepoint-keeps-what-failed", File: "sqltx/scope.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^sqlite$/^Savepoints$",
		Old: `err = also(err, s.rollbackTo(ctx, name))`, New: `err = also(err, nil)`,
		Why: "what failed inside is committed with what is outside",
	},
	{
		Name: "sql-goes-on-after-a-deadlock", File: "sqltx/dialects.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^mariadb$/^Deadlock$",
		Old: "Before:    []string{`SET autocommit = 0`},", New: `Before:    nil,`,
		Why: "on MySQL a handler that swallows a deadlock commits the second half of its work alone",
	},
	{
		Name: "sql-no-retries", File: "sqltx/tx.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^postgres$/^Deadlock$",
		Old: `attempt > r.opts.Retries`, New: `attempt > 0`,
		Why: "a deadlock is an error though retries were asked for",
	},
	{
		Name: "sql-ack-ends-with-the-context", File: "sqltx/pump.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^sqlite$/^Publish$",
		Old: `work := context.WithoutCancel(ctx)`, New: `work := ctx`,
		Why: "what was published while a process stops is published again",
	},
	{
		Name: "sql-leases-not-renewed", File: "sqltx/pump.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^postgres$/^Leases$",
		Old: "case <-renew.C:\n\t\t\ts.renew(work)\n", New: "case <-renew.C:\n",
		Why: "what a slow publisher has in flight is sent again by another one",
	},
	{
		Name: "sql-poison-forever", File: "sqltx/claim.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^sqlite$/^Leases$",
		Old: `case r.attempts > s.cfg.Attempts:`, New: `case false:`,
		Why: "an event that takes its process down does so for ever",
	},
	{
		Name: "sql-leases-kept-at-the-end", File: "sqltx/pump.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^postgres$/^Shutdown$",
		Old: "s.takeBack()\n\tclose", New: "close",
		Why: "a deployment delays events by a lease",
	},
	{
		Name: "sql-order-of-a-key", File: "sqltx/claim.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^postgres$/^Order$",
		Old: `e.id < o.id%[2]s`, New: `e.id < 0%[2]s`,
		Why: "the events of a key come in any order",
	},
	{
		Name: "sql-two-owners-of-a-key", File: "sqltx/claim.go", Package: "sqltx/sqltest", Test: "^TestClaimsAtTheSameMoment$",
		Old: `if others[h.key] {`, New: `if others[h.key] && false {`,
		Why: "two publishers that claim at the same moment publish events of one key side by side",
	},
	{
		Name: "sql-parked-do-not-hold", File: "sqltx/claim.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^postgres$/^Parked$",
		Old: `if s.cfg.SkipParked {`, New: `if !s.cfg.SkipParked {`,
		Why: "later events of a key overtake one that is parked",
	},
	{
		Name: "sql-outage-costs-attempts", File: "sqltx/settle.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^sqlite$/^Failures$",
		Old: `e.what, e.delay = back, asked`, New: `e.delay = asked`,
		Why: "an outage of the broker parks everything",
	},
	{
		Name: "sql-driven-outage-costs-attempts", File: "relay/drive.go", Package: "relay", Test: "^TestDrive$",
		Old: `msg.Nack(untried{message.RetryAfter(err, pause)})`, New: `msg.Nack(message.RetryAfter(err, pause))`,
		Why: "an outage of the broker parks everything",
	},
	{
		Name: "sql-cleanup-deletes-what-waits", File: "sqltx/cleanup.go", Package: "sqltx/sqltest", Test: "^TestConformance$/^sqlite$/^Cleanup$",
		Old: `strings.EqualFold(column, "published")`, New: `strings.EqualFold(column, "")`,
		Why: "events are deleted before they are published",
	},
	{
		Name: "sql-cleanup-of-the-wrong-partition", File: "sqltx/dialects.go", Package: "sqltx/sqltest", Test: "^TestPartitioned$",
		Old: `WHERE %[2]s AND ctid`, New: `WHERE ctid`,
		Why: "young rows of a partitioned table are deleted",
	},
	{
		Name: "sql-driver-in-a-handler", File: "internal/rules/handlers_test.go", Package: "internal/rules", Test: "^TestHandlerProblems$",
		Old: `redis|sql|pgx`, New: `redis|pgx`,
		Why: "a handler file may import database/sql unnoticed",
	},
}
