// Package pgx runs handlers in transactions of a pgx pool, as package sqltx does with database/sql. The inbox and the outbox of
// sqltx work inside these transactions:
//
//	router.Use(
//		pgx.TxMiddleware(pool, nil),
//		sqltx.InboxMiddleware(sqltx.InboxConfig{Dialect: sqltx.PostgreSQL()}),
//		sqltx.OutboxMiddleware(sqltx.OutboxConfig{Dialect: sqltx.PostgreSQL()}),
//	)
//
// Adapters write to ExecutorFromContext(ctx, pool). An sqltx.OutboxPublisher publishes events, on a database/sql handle of the
// same pool (stdlib.OpenDBFromPool); Listen wakes it.
package pgx
