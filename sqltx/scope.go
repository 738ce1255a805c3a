package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// scope is a transaction as a context carries it. A transaction that was begun elsewhere has no db and no options.
type scope struct {
	tx   *sql.Tx
	exec Transaction
	db   *sql.DB
	opts TxOptions

	savepoints atomic.Int64

	mu     sync.Mutex
	broken error    // why it must not be committed
	after  []func() // functions to call after the commit
}

// carries returns an error unless the transaction can nest another one as a savepoint.
func (s *scope) carries(r runner) error {
	switch {
	case s.tx == nil:
		return errors.New("sqltx: begin transaction: the context has a transaction of another library; nest with that library")
	case s.db != nil && s.db != r.db:
		return errors.New("sqltx: begin transaction: the context has a transaction of another database; send an event to the other database instead")
	case r.opts.Isolation != sql.LevelDefault && s.db != nil && r.opts.Isolation != s.opts.Isolation:
		return fmt.Errorf("sqltx: begin transaction: isolation %v inside a transaction of %v; set Isolation on the outer transaction", r.opts.Isolation, s.opts.Isolation)
	}
	return nil
}

// savepoint runs fn so that its effects are undone separately if it fails or panics.
func (s *scope) savepoint(ctx context.Context, fn func(context.Context) error) (err error) {
	name := fmt.Sprintf("luatx_%d", s.savepoints.Add(1))
	if _, err := s.tx.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return fmt.Errorf("sqltx: begin transaction: %w", err)
	}
	released := false
	defer func() {
		if !released {
			err = also(err, s.rollbackTo(ctx, name))
		}
	}()
	if err := fn(ctx); err != nil {
		return err
	}
	if _, err := s.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+name); err != nil {
		return fmt.Errorf("sqltx: commit transaction: %w", err)
	}
	released = true
	return nil
}

// rollbackTo rolls back to a savepoint. If that fails, the transaction is unusable: a deadlock may have ended it, and further
// statements would commit separately.
func (s *scope) rollbackTo(ctx context.Context, name string) error {
	_, err := s.tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK TO SAVEPOINT "+name)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("sqltx: roll back transaction: %w", err)
	s.mu.Lock()
	s.broken = err
	s.mu.Unlock()
	return also(err, rollback(s.tx))
}

func (s *scope) commit(ctx context.Context) error {
	s.mu.Lock()
	broken, after := s.broken, s.after
	s.mu.Unlock()
	if broken != nil {
		return fmt.Errorf("sqltx: commit transaction: %w", broken)
	}
	if s.opts.Dialect.Guarded {
		if _, err := s.tx.ExecContext(ctx, "RELEASE SAVEPOINT luatx"); err != nil {
			return fmt.Errorf("sqltx: commit transaction: the database has already rolled it back: %w", err)
		}
	}
	if err := s.tx.Commit(); err != nil {
		return fmt.Errorf("sqltx: commit transaction: %w", err)
	}
	for _, f := range after {
		f()
	}
	return nil
}

// afterCommit calls f after the commit. For a transaction that was begun elsewhere, f is never called.
func (s *scope) afterCommit(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = append(s.after, f)
}
