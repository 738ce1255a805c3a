package pgx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
)

// TxOptions configure transactions. Nil and the zero value are usable.
type TxOptions struct {
	// TxOptions are the options of pgx: isolation level, access mode. They default to those of the server.
	pgx.TxOptions
	// Retries is how often a transaction runs again after it failed because of a concurrent one: a serialization failure, a
	// deadlock. The handler runs again, too. Defaults to none: the message is nacked and delivered again.
	Retries int
	// Backoff is the pause before a retry. Defaults to at most 10 ms, doubled each time, up to 1 s.
	Backoff message.Backoff
}

// TxMiddleware runs each handler inside a transaction of the pool. It commits if the handler returns without an error, and rolls
// back if the handler fails or panics. The Router acknowledges the message after the commit. Place TxMiddleware before
// sqltx.InboxMiddleware and sqltx.OutboxMiddleware.
//
// Inside another TxMiddleware of the same pool, it uses a savepoint, so that a failure undoes only the inner part.
func TxMiddleware(pool *pgxpool.Pool, opts *TxOptions) message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) (outputs []*message.Message, err error) {
			err = Transact(ctx, pool, opts, func(ctx context.Context) (err error) {
				if outputs, err = next(ctx, msg); err != nil {
					return err
				}
				return message.CheckOutputs(ctx, msg, outputs, false)
			})
			if err != nil {
				return nil, err
			}
			return outputs, nil
		}
	})
}

// Transact runs fn inside a transaction of the pool as TxMiddleware runs a handler, for work outside of handlers. If the context
// already carries a transaction, Transact uses a savepoint of that one.
func Transact(ctx context.Context, pool *pgxpool.Pool, opts *TxOptions, fn func(ctx context.Context) error) error {
	o, err := opts.withDefaults(pool)
	if err != nil {
		return err
	}
	if outer, nested := ctx.Value(txKey{}).(carried); nested {
		if err := outer.carries(pool, o); err != nil {
			return err
		}
		return once(ctx, outer.tx.Begin, carried{pool: outer.pool, opts: outer.opts}, fn)
	}
	if _, other := sqltx.TxFromContext(ctx); other {
		return errors.New("pgx: begin transaction: the context has a transaction of sqltx; nest with sqltx.Transact, or replace sqltx.TxMiddleware by that of pgx")
	}
	begin := func(ctx context.Context) (pgx.Tx, error) { return pool.BeginTx(ctx, o.TxOptions) }
	for attempt := 1; ; attempt++ {
		err := once(ctx, begin, carried{pool: pool, opts: o.TxOptions}, fn)
		if err == nil || attempt > o.Retries || ctx.Err() != nil || !retryable(err) {
			return err
		}
		if !sleep.For(ctx, o.Backoff.Delay(attempt)) {
			return err
		}
	}
}

func (o *TxOptions) withDefaults(pool *pgxpool.Pool) (TxOptions, error) {
	var out TxOptions
	if o != nil {
		out = *o
	}
	out.Backoff.Base = cmp.Or(out.Backoff.Base, 10*time.Millisecond)
	out.Backoff.Max = cmp.Or(out.Backoff.Max, time.Second)
	switch {
	case pool == nil:
		return out, errors.New("pgx: begin transaction: the pool is nil; set the pool")
	case out.Retries < 0:
		return out, fmt.Errorf("pgx: TxOptions.Retries is %d; use 0 or more", out.Retries)
	}
	return out, nil
}

// carries returns an error unless the transaction can nest another one as a savepoint.
func (c carried) carries(pool *pgxpool.Pool, o TxOptions) error {
	switch {
	case c.pool != nil && c.pool != pool:
		return errors.New("pgx: begin transaction: the context has a transaction of another pool; send an event to the other database instead")
	case c.pool != nil && o.IsoLevel != "" && o.IsoLevel != c.opts.IsoLevel:
		return fmt.Errorf("pgx: begin transaction: isolation %q inside a transaction of %q; set IsoLevel on the outer transaction", o.IsoLevel, c.opts.IsoLevel)
	}
	return nil
}

// once runs fn in one transaction or savepoint.
func once(ctx context.Context, begin func(context.Context) (pgx.Tx, error), c carried, fn func(context.Context) error) (err error) {
	if c.tx, err = begin(ctx); err != nil {
		return fmt.Errorf("pgx: begin transaction: %w", err)
	}
	defer func() { // runs after a panic, too; has no effect after the commit
		if rollback := c.tx.Rollback(context.WithoutCancel(ctx)); rollback != nil && !errors.Is(rollback, pgx.ErrTxClosed) {
			err = errors.Join(err, fmt.Errorf("pgx: roll back transaction: %w", rollback))
		}
	}()
	if err := fn(with(ctx, c)); err != nil {
		return err
	}
	if err := c.tx.Commit(ctx); err != nil {
		return fmt.Errorf("pgx: commit transaction: %w", err)
	}
	return nil
}

// retryable reports whether a transaction failed because of a concurrent one.
func retryable(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}
