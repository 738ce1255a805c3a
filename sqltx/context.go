package sqltx

import (
	"context"
	"database/sql"
)

// Executor is the common interface of *sql.DB and *sql.Tx that adapters need.
type Executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Transaction is a transaction of any kind for the inbox and the outbox. A library with its own transactions, such as
// contrib/pgx, passes them to both with ContextWithTransaction.
type Transaction interface {
	// Exec executes a statement and returns the number of affected rows.
	Exec(ctx context.Context, query string, args ...any) (affected int64, err error)
}

type scopeKey struct{}

// ContextWithTx returns a copy of ctx that carries a transaction for adapters, the inbox and the outbox. The code that began the
// transaction must commit it.
func ContextWithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, scopeKey{}, &scope{tx: tx, exec: sqlTransaction{tx}})
}

// ContextWithTransaction returns a copy of ctx that carries a transaction that is not a *sql.Tx. The inbox and the outbox use it;
// TxFromContext does not return it.
func ContextWithTransaction(ctx context.Context, tx Transaction) context.Context {
	return context.WithValue(ctx, scopeKey{}, &scope{exec: tx})
}

// TxFromContext returns the transaction of ctx, and false if there is none.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	s, ok := scopeFrom(ctx)
	if !ok || s.tx == nil {
		return nil, false
	}
	return s.tx, true
}

// ExecutorFromContext returns the transaction of ctx, or else fallback. An adapter that uses it writes in the handler's
// transaction, and also works outside of handlers.
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
