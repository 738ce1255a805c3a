package pgx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/luatx/luatx/sqltx"
)

// Executor is what a pool and a transaction have in common: what adapters need.
type Executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error)
}

type txKey struct{}

// carried is a transaction as a context carries it. What began elsewhere has no pool and no options.
type carried struct {
	tx   pgx.Tx
	pool *pgxpool.Pool
	opts pgx.TxOptions
}

// ContextWithTx returns a context that carries a transaction, for adapters and for the inbox and outbox of sqltx. Whoever
// began it commits it.
func ContextWithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return with(ctx, carried{tx: tx})
}

func with(ctx context.Context, c carried) context.Context {
	return sqltx.ContextWithTransaction(context.WithValue(ctx, txKey{}, c), transaction{c.tx})
}

// TxFromContext returns the transaction that the context carries.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	c, ok := ctx.Value(txKey{}).(carried)
	return c.tx, ok
}

// ExecutorFromContext returns the transaction that the context carries, or else the pool. What an adapter executes on it
// is part of the handler's transaction, and works outside of handlers as well.
func ExecutorFromContext(ctx context.Context, fallback *pgxpool.Pool) Executor {
	if tx, ok := TxFromContext(ctx); ok {
		return tx
	}
	return fallback
}

// transaction is a pgx.Tx as the inbox and the outbox use it.
type transaction struct{ tx pgx.Tx }

// Exec implements sqltx.Transaction.
func (t transaction) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}
