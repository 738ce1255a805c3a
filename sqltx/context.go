package sqltx

import (
	"context"
	"database/sql"
)

// Executor is what *sql.DB and *sql.Tx have in common: what adapters need.
type Executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Transaction is a transaction of whatever kind, as the inbox and the outbox use one. A library that has transactions of
// its own (contrib/pgx is one) gives them to both by ContextWithTransaction.
type Transaction interface {
	// Exec runs a statement and returns how many rows it has affected.
	Exec(ctx context.Context, query string, args ...any) (affected int64, err error)
}

type scopeKey struct{}

// ContextWithTx returns a context that carries a transaction, for adapters, inbox and outbox. Whoever began it commits
// it.
func ContextWithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, scopeKey{}, &scope{tx: tx, exec: sqlTransaction{tx}})
}

// ContextWithTransaction returns a context that carries a transaction which is no *sql.Tx: inbox and outbox use it,
// TxFromContext does not know it.
func ContextWithTransaction(ctx context.Context, tx Transaction) context.Context {
	return context.WithValue(ctx, scopeKey{}, &scope{exec: tx})
}

// TxFromContext returns the transaction that the context carries.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	s, ok := scopeFrom(ctx)
	if !ok || s.tx == nil {
		return nil, false
	}
	return s.tx, true
}

// ExecutorFromContext returns the transaction that the context carries, or else the database. What an adapter executes on
// it is part of the handler's transaction, and works outside of handlers as well.
func ExecutorFromContext(ctx context.Context, fallback *sql.DB) Executor {
	if tx, ok := TxFromContext(ctx); ok {
		return tx
	}
	return fallback
}

func scopeFrom(ctx context.Context) (*scope, bool) {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	return s, ok
}

type sqlTransaction struct{ tx *sql.Tx }

func (t sqlTransaction) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
