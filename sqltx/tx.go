package sqltx

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

// TxOptions configure transactions. Nil and the zero value are usable.
type TxOptions struct {
	// Isolation is the isolation level. Defaults to that of the database.
	Isolation sql.IsolationLevel
	// ReadOnly starts read-only transactions.
	ReadOnly bool
	// Retries is how often a transaction runs again after it failed because of a concurrent one: a serialization failure, a
	// deadlock, a locked database. The handler runs again, too. Defaults to none: the message is nacked and delivered again.
	Retries int
	// Backoff is the pause before a retry. Defaults to at most 10 ms, doubled each time, up to 1 s.
	Backoff message.Backoff
	// Dialect defaults to that of the database's driver.
	Dialect Dialect
}

func (o TxOptions) withDefaults(db *sql.DB) (TxOptions, error) {
	o.Backoff.Base = cmp.Or(o.Backoff.Base, 10*time.Millisecond)
	o.Backoff.Max = cmp.Or(o.Backoff.Max, time.Second)
	if o.Retries < 0 {
		return o, fmt.Errorf("sqltx: TxOptions.Retries is %d; use 0 or more", o.Retries)
	}
	if db == nil {
		return o, errors.New("sqltx: the *sql.DB is nil")
	}
	var err error
	if o.Dialect, err = dialectOr(o.Dialect, db); err != nil {
		return o, fmt.Errorf("sqltx: TxOptions: %w", err)
	}
	return o, nil
}

// TxMiddleware runs each handler inside a database transaction. It commits if the handler returns without an error, and rolls
// back if the handler fails or panics. The Router acknowledges the message after the commit. Place TxMiddleware before
// InboxMiddleware and OutboxMiddleware. Adapters get the transaction from ExecutorFromContext.
//
// Inside another TxMiddleware of the same database, it uses a savepoint, so that a failure undoes only the inner part.
func TxMiddleware(db *sql.DB, opts *TxOptions) message.Middleware {
	r, err := newRunner(db, opts)
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if err != nil {
				return nil, err
			}
			var outputs []*message.Message
			if err := r.run(ctx, func(ctx context.Context) (err error) {
				if outputs, err = next(ctx, msg); err != nil {
					return err
				}
				return message.CheckOutputs(ctx, msg, outputs, false)
			}); err != nil {
				return nil, err
			}
			return outputs, nil
		}
	})
}

// Transact runs fn inside a database transaction as TxMiddleware runs a handler, for work outside of handlers. If the context
// already carries a transaction, Transact uses a savepoint of that one.
func Transact(ctx context.Context, db *sql.DB, opts *TxOptions, fn func(ctx context.Context) error) error {
	r, err := newRunner(db, opts)
	if err != nil {
		return err
	}
	return r.run(ctx, fn)
}

type runner struct {
	db   *sql.DB
	opts TxOptions
}

func newRunner(db *sql.DB, opts *TxOptions) (runner, error) {
	var o TxOptions
	if opts != nil {
		o = *opts
	}
	o, err := o.withDefaults(db)
	return runner{db: db, opts: o}, err
}

func (r runner) run(ctx context.Context, fn func(context.Context) error) error {
	if outer, nested := scopeFrom(ctx); nested {
		if err := outer.carries(r); err != nil {
			return err
		}
		return outer.savepoint(ctx, fn)
	}
	for attempt := 1; ; attempt++ {
		err := r.once(ctx, fn)
		if err == nil || attempt > r.opts.Retries || ctx.Err() != nil || !r.retryable(err) {
			return err
		}
		if !sleep.For(ctx, r.opts.Backoff.Delay(attempt)) {
			return err
		}
	}
}

func (r runner) retryable(err error) bool {
	return r.opts.Dialect.Retryable != nil && r.opts.Dialect.Retryable(err)
}

// once runs fn in one transaction.
func (r runner) once(ctx context.Context, fn func(context.Context) error) (err error) {
	tx, release, err := r.begin(ctx)
	if err != nil {
		return fmt.Errorf("sqltx: begin transaction: %w", err)
	}
	s := &scope{tx: tx, exec: sqlTransaction{tx}, db: r.db, opts: r.opts}
	committed := false
	defer func() { err = also(err, release(tx, committed)) }() // runs after a panic, too
	if r.opts.Dialect.Guarded {
		if _, err := tx.ExecContext(ctx, "SAVEPOINT luatx"); err != nil {
			return fmt.Errorf("sqltx: begin transaction: %w", err)
		}
	}
	if err := fn(context.WithValue(ctx, scopeKey{}, s)); err != nil {
		return err
	}
	if err := s.commit(ctx); err != nil {
		return err
	}
	committed = true
	return nil
}

// begin begins a transaction. The returned function rolls it back unless it was committed, and releases its connection.
func (r runner) begin(ctx context.Context) (*sql.Tx, func(tx *sql.Tx, committed bool) error, error) {
	opts := &sql.TxOptions{Isolation: r.opts.Isolation, ReadOnly: r.opts.ReadOnly}
	if len(r.opts.Dialect.Before) == 0 {
		tx, err := r.db.BeginTx(ctx, opts)
		return tx, func(tx *sql.Tx, _ bool) error { return rollback(tx) }, err
	}
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	release := func(tx *sql.Tx, committed bool) error {
		err, after := rollback(tx), r.opts.Dialect.After
		if !committed { // database/sql may still wait to roll back for an ended context, and After would commit
			after = append([]string{"ROLLBACK"}, after...)
		}
		if restoreErr := all(context.WithoutCancel(ctx), conn, after); restoreErr != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // removes the changed connection from the pool
		}
		_ = conn.Close() // returns it to the pool
		return err
	}
	if err := all(ctx, conn, r.opts.Dialect.Before); err != nil {
		return nil, nil, also(err, release(nil, false))
	}
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, nil, also(err, release(nil, false))
	}
	return tx, release, nil
}

func all(ctx context.Context, exec Executor, statements []string) error {
	for _, statement := range statements {
		if _, err := exec.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// also joins an error with one of the cleanup, if there is one.
func also(err, more error) error {
	if more == nil {
		return err
	}
	return errors.Join(err, more)
}

// rollback rolls back an uncommitted transaction. If the connection is gone, the server has rolled back.
func rollback(tx *sql.Tx) error {
	if tx == nil {
		return nil
	}
	err := tx.Rollback()
	if err == nil || errors.Is(err, sql.ErrTxDone) || errors.Is(err, driver.ErrBadConn) {
		return nil
	}
	return fmt.Errorf("sqltx: roll back transaction: %w", err)
}
