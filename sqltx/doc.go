// Package sqltx is the transactional stack for SQL databases. The writes of a handler, the mark that its message was handled, and
// the events that it publishes commit in one database transaction. The package is used like the stack for Redis. It runs on
// database/sql with PostgreSQL, MySQL or MariaDB, and SQLite; the user chooses the driver.
//
//	router.Use(
//		sqltx.TxMiddleware(db, nil),     // begin, commit; roll back on an error and on a panic
//		sqltx.InboxMiddleware(inbox),    // a message counts once
//		sqltx.OutboxMiddleware(outbox),  // outputs become rows of the outbox
//	)
//
// Handlers do not depend on it. Adapters write to ExecutorFromContext(ctx, db), which is the transaction inside a handler and the
// database elsewhere. The message is acknowledged after the commit.
//
// # Events
//
// An [OutboxPublisher] reads committed events and hands them out as messages. An ack marks an event published. Any number of
// publishers can work on one table, because a lease gives each row to one of them at a time. A publisher selects rows by their
// state and not by their number, so it does not skip a row that commits late. It hands out the events of an ordering key one
// after the other, and one publisher does so at a time. Failed events are retried with backoff, and parked when their attempts
// are used up. relay.Drive publishes with a relay.Publisher.
//
// # Tables
//
// Only Init and the migrations in [Migrations] create tables. The package never does so implicitly.
//
// Times are those of the database, so leases and retention do not depend on the clocks of the processes.
package sqltx
