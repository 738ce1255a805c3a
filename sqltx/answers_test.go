package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// answers is a database whose replies a test defines, without a server, in the time of the test.
type answers struct {
	// answer returns the rows of a statement. Nil returns none.
	answer func(statement string, args []any) ([][]any, error)

	mu    sync.Mutex
	began time.Time
	heard []heard
}

// heard is a statement that a database received, with the time since the first poll, and the time that it may take.
type heard struct {
	at        time.Duration
	within    time.Duration // 0: any
	statement string
	args      []any
}

func (a *answers) open(t *testing.T) *sql.DB {
	a.began = time.Now()
	db := sql.OpenDB(a)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// of returns the statements that contain a text.
func (a *answers) of(part string) (found []heard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.heard {
		if strings.Contains(h.statement, part) {
			found = append(found, h)
		}
	}
	return found
}

// times returns when the statements that contain a text were received.
func (a *answers) times(part string) (at []time.Duration) {
	for _, h := range a.of(part) {
		at = append(at, h.at)
	}
	return at
}

func (a *answers) ask(ctx context.Context, statement string, named []driver.NamedValue) (*answered, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	within := time.Duration(0)
	if until, bounded := ctx.Deadline(); bounded {
		within = time.Until(until)
	}
	var args []any
	for _, v := range named {
		args = append(args, v.Value)
	}
	a.mu.Lock()
	a.heard = append(a.heard, heard{time.Since(a.began), within, statement, args})
	a.mu.Unlock()
	if a.answer == nil {
		return &answered{}, nil
	}
	rows, err := a.answer(statement, args)
	if err != nil {
		return nil, err
	}
	found := &answered{rows: rows}
	if len(rows) > 0 {
		found.columns = len(rows[0])
	}
	return found, nil
}

// Connect and the methods below implement the interfaces of package database/sql/driver.
func (a *answers) Connect(context.Context) (driver.Conn, error) { return a, nil }
func (a *answers) Driver() driver.Driver                        { return nil }
func (a *answers) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (a *answers) Close() error                                 { return nil }
func (a *answers) ResetSession(context.Context) error           { return nil }
func (a *answers) IsValid() bool                                { return true }

func (a *answers) Begin() (driver.Tx, error) { return a, a.say("BEGIN") }

// BeginTx is Begin, with the isolation and the kind of the transaction as arguments.
func (a *answers) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	_, err := a.ask(ctx, "BEGIN", []driver.NamedValue{{Value: sql.IsolationLevel(opts.Isolation)}, {Value: opts.ReadOnly}})
	return a, err
}

func (a *answers) Commit() error   { return a.say("COMMIT") }
func (a *answers) Rollback() error { return a.say("ROLLBACK") }

func (a *answers) say(statement string) error {
	_, err := a.ask(context.Background(), statement, nil)
	return err
}

func (a *answers) ExecContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
	rows, err := a.ask(ctx, statement, args)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(len(rows.rows)), nil
}

func (a *answers) QueryContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	return a.ask(ctx, statement, args)
}

type answered struct {
	rows    [][]any
	columns int
}

func (r *answered) Columns() []string { return make([]string, r.columns) }
func (r *answered) Close() error      { return nil }

func (r *answered) Next(to []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	if r.rows[0] == nil { // the connection is lost within the reply
		return io.ErrUnexpectedEOF
	}
	for i, v := range r.rows[0] {
		to[i] = v
	}
	r.rows = r.rows[1:]
	return nil
}
