package sqltest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/race"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

// TestOperationFailsWithTheErrorOfAFailedStatement rejects each step of an operation, one at a time. The operation succeeds
// when it is retried.
func TestOperationFailsWithTheErrorOfAFailedStatement(t *testing.T) {
	t.Parallel()
	if race.On {
		t.Skip("SQLite is translated from C to Go, which the race detector slows down too much")
	}
	for name, act := range sqlOperations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				g := newSQLGround(t)
				g.refuser.arm(n)
				err := act(t.Context(), g)
				refused := g.refuser.disarm()
				if refused == "" {
					must(t, err)
					return
				}
				if !errors.Is(err, errRefused) {
					t.Errorf("step %d was refused, %s: the error is %v", n, refused, err)
				}
				if err := act(t.Context(), g); err != nil {
					t.Errorf("after step %d, %s: %v", n, refused, err)
				}
			}
		})
	}
}

var sqlOperations = map[string]func(context.Context, *sqlGround) error{
	"Init": func(ctx context.Context, g *sqlGround) error {
		return errors.Join(g.inbox.Init(ctx), g.outbox.Init(ctx))
	},
	"a message": func(ctx context.Context, g *sqlGround) error {
		var got error
		out := message.New("out", message.Attributes{"type": "sold", "source": "/shop", "id": "out"}, nil)
		process := func(context.Context, *message.Message) ([]*message.Message, error) {
			return []*message.Message{out}, nil
		}
		for _, m := range []message.Middleware{sqltx.OutboxMiddleware(g.outbox), sqltx.InboxMiddleware(g.inbox), sqltx.TxMiddleware(g.db, g.opts())} {
			process = m.Wrap(process)
		}
		_, got = process(ctx, message.New(nil, message.Attributes{"type": "order", "source": "/shop", "id": "1"}, nil))
		return got
	},
	"a handler that fails": func(ctx context.Context, g *sqlGround) error {
		failed := errors.New("failed")
		err := sqltx.Transact(ctx, g.db, g.opts(), func(context.Context) error { return failed })
		if errors.Is(err, failed) && !errors.Is(err, errRefused) {
			return nil
		}
		return err
	},
	"a savepoint": func(ctx context.Context, g *sqlGround) error {
		return sqltx.Transact(ctx, g.db, g.opts(), func(ctx context.Context) error {
			return sqltx.Transact(ctx, g.db, g.opts(), func(ctx context.Context) error {
				_, err := sqltx.ExecutorFromContext(ctx, g.db).ExecContext(ctx, "UPDATE business SET n = n + 1")
				return err
			})
		})
	},
	"a savepoint that is undone": func(ctx context.Context, g *sqlGround) error {
		failed := errors.New("failed")
		return sqltx.Transact(ctx, g.db, g.opts(), func(ctx context.Context) error {
			err := sqltx.Transact(ctx, g.db, g.opts(), func(context.Context) error { return failed })
			if errors.Is(err, failed) && !errors.Is(err, errRefused) {
				return nil
			}
			return err
		})
	},
	"Cleanup": func(ctx context.Context, g *sqlGround) error {
		n, err := sqltx.Cleanup(ctx, sqltx.CleanupConfig{DB: g.db, Table: "old", Dialect: sqltx.SQLite(), Retention: time.Hour})
		if err == nil && n != 3 {
			err = errors.New("not all old rows were deleted")
		}
		return err
	},
	"Parked": func(ctx context.Context, g *sqlGround) (err error) {
		for _, e := range g.publisher().Parked(ctx) {
			err = errors.Join(err, e)
		}
		return err
	},
	"Rearm": func(ctx context.Context, g *sqlGround) error {
		n, err := g.publisher().Rearm(ctx, 1)
		return none(n, err)
	},
	"Discard": func(ctx context.Context, g *sqlGround) error {
		n, err := g.publisher().Discard(ctx, 1)
		return none(n, err)
	},
}

// none returns the error of an operation that reports a number, which must be 0 if it has failed.
func none(n int, err error) error {
	if err != nil && n != 0 {
		return fmt.Errorf("%d rows in spite of an error: %w", n, err)
	}
	return err
}

// sqlGround is a database with rows in each table.
type sqlGround struct {
	refuser *sqlRefuser
	db      *sql.DB
	inbox   sqltx.InboxConfig
	outbox  sqltx.OutboxConfig
}

func newSQLGround(t *testing.T) *sqlGround {
	t.Helper()
	d := sqltest.SQLite(t)
	plain := d.Open(t)
	r := &sqlRefuser{driver: plain.Driver(), dsn: sqltest.SQLiteDSN(filepath.Join(t.TempDir(), "refused.db"))}
	db := sql.OpenDB(r)
	t.Cleanup(func() { _ = db.Close() })
	g := &sqlGround{
		refuser: r, db: db,
		inbox:  sqltx.InboxConfig{DB: db, Table: "inbox", Subscriber: "orders", Dialect: sqltx.SQLite()},
		outbox: sqltx.OutboxConfig{DB: db, Table: "outbox", Topic: "sales", Dialect: sqltx.SQLite()},
	}
	must(t, errors.Join(g.inbox.Init(t.Context()), g.outbox.Init(t.Context())))
	must(t, sqltx.Transact(t.Context(), db, g.opts(), func(ctx context.Context) error {
		return sqltx.Emit(ctx, g.outbox, message.New("x", message.Attributes{"type": "sold", "source": "/shop", "id": "parked"}, nil))
	}))
	for _, statement := range []string{
		"UPDATE outbox SET parked = TRUE",
		"CREATE TABLE business (n INTEGER NOT NULL)", "INSERT INTO business VALUES (0)",
		"CREATE TABLE old (id INTEGER PRIMARY KEY, created_at TIMESTAMP)",
		"INSERT INTO old VALUES (1, '2020-01-01'), (2, '2020-01-01'), (3, '2020-01-01')",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	return g
}

func (g *sqlGround) opts() *sqltx.TxOptions { return &sqltx.TxOptions{Dialect: sqltx.SQLite()} }

func (g *sqlGround) publisher() *sqltx.OutboxPublisher {
	return sqltx.NewOutboxPublisher(sqltx.OutboxPublisherConfig{DB: g.db, Table: "outbox", Dialect: sqltx.SQLite()})
}

var errRefused = errors.New("refused by the test")

// sqlRefuser is a driver's connector that rejects one step.
type sqlRefuser struct {
	driver driver.Driver
	dsn    string

	mu      sync.Mutex
	left    int // steps before the rejected one
	refused string
}

func (r *sqlRefuser) arm(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = n
}

// disarm returns the rejected step, or "" if there was none.
func (r *sqlRefuser) disarm() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = 0
	return r.refused
}

// step returns an error if this step must be rejected.
func (r *sqlRefuser) step(what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left--; r.left != 0 {
		return nil
	}
	r.refused = what
	return errRefused
}

func (r *sqlRefuser) Driver() driver.Driver { return r.driver }

func (r *sqlRefuser) Connect(context.Context) (driver.Conn, error) {
	conn, err := r.driver.Open(r.dsn)
	if err != nil {
		return nil, err
	}
	return refusedConn{conn, r}, nil
}

type refusedConn struct {
	driver.Conn
	r *sqlRefuser
}

func (c refusedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.r.step("begin"); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return refusedTx{tx, c.r}, err
}

func (c refusedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.r.step(query); err != nil {
		return nil, err
	}
	result, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	return refusedResult{result, c.r}, err
}

func (c refusedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.r.step(query); err != nil {
		return nil, err
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	return refusedRows{rows, c.r}, err
}

type refusedTx struct {
	driver.Tx
	r *sqlRefuser
}

func (tx refusedTx) Commit() error {
	if err := tx.r.step("commit"); err != nil {
		return errors.Join(err, tx.Tx.Rollback())
	}
	return tx.Tx.Commit()
}

func (tx refusedTx) Rollback() error { return errors.Join(tx.Tx.Rollback(), tx.r.step("rollback")) }

type refusedResult struct {
	driver.Result
	r *sqlRefuser
}

func (r refusedResult) RowsAffected() (int64, error) {
	if err := r.r.step("rows affected"); err != nil {
		return 0, err
	}
	return r.Result.RowsAffected()
}

type refusedRows struct {
	driver.Rows
	r *sqlRefuser
}

func (r refusedRows) Next(dest []driver.Value) error {
	if err := r.r.step("the next row"); err != nil {
		return err
	}
	return r.Rows.Next(dest)
}
