// Package sqltx is the transactional stack for SQL databases: what a handler writes, the mark that its message has been
// handled, and the events that it publishes commit in one database transaction. It reads like the stack for Redis, and
// runs on database/sql with PostgreSQL, MySQL or MariaDB, and SQLite; the driver is the user's.
//
//	router.Use(
//		sqltx.TxMiddleware(db, nil),     // begin, commit; roll back on an error and on a panic
//		sqltx.InboxMiddleware(inbox),    // a message counts once
//		sqltx.OutboxMiddleware(outbox),  // outputs become rows of the outbox
//	)
//
// Handlers know nothing of it. Adapters write to ExecutorFromContext(ctx, db): the transaction inside of a handler, the
// database elsewhere. The message is acknowledged after the commit.
//
// # Events
//
// An [OutboxPublisher] reads committed events and hands them out as messages whose ack marks them published. Any number
// of them work on one table: a row belongs to one of them at a time, by lease. It chooses rows by their state and not
// by their number, so a row that commits late is not skipped. Events with an ordering key are handed out one after the
// other, by one publisher at a time. What fails is tried again with backoff, and parked when its attempts are used up.
// relay.Drive publishes with a relay.Publisher.
//
// # Tables
//
// Nothing here creates a table by itself. Init does, where it is called, and so do the migrations in [Migrations].
//
// Time is the database's: leases and retention do not depend on the clocks of those who work on it.
package sqltx
