package pgx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/luatx/luatx/sqltx"
)

// Executor is the common interface of a pool and a transaction that adapters need.
type Executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error)
}

type txKey struct{}

// carried is a transaction as a context carries it. A transaction that was begun elsewhere has no pool and no options.
type carried struct {
	tx   pgx.Tx
	pool *pgxpool.Pool
	opts pgx.TxOptions
}

// ContextWithTx returns a copy of ctx that carries a transaction, for adapters and for the inbox and the outbox of sqltx. The
// code that began the transaction must commit it.
func ContextWithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return with(ctx, carried{tx: tx})
}

func with(ctx context.Context, c carried) context.Context {
	return sqltx.ContextWithTransaction(context.WithValue(ctx, txKey{}, c), transaction{c.tx})
}

// TxFromContext returns the transaction of ctx, and false if there is none.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	c, ok := ctx.Value(txKey{}).(carried)
	return c.tx, ok
}

// ExecutorFromContext returns the transaction of ctx, or else fallback. An adapter that uses it writes in the handler's
// transaction, and also works outside of handlers.
func ExecutorFromContext(ctx context.Context, fallback *pgxpool.Pool) Executor {
	if tx, ok := TxFromContext(ctx); ok {
		return tx
	}
	return fallback
}

// transaction adapts a pgx.Tx to the inbox and the outbox.
type transaction struct{ tx pgx.Tx }

// Exec implements sqltx.Transaction.
func (t transaction) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}
