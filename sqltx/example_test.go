package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/luatx/luatx/sqltx"
)

// An adapter writes with the executor from the context. Inside Transact or TxMiddleware, that is the transaction.
func ExampleTransact() {
	db := sql.OpenDB(printing{}) // a database that prints its statements
	defer func() { _ = db.Close() }()
	place := func(ctx context.Context, order string) error { // the adapter
		_, err := sqltx.ExecutorFromContext(ctx, db).ExecContext(ctx, "INSERT INTO orders (id) VALUES ('"+order+"')")
		return err
	}
	opts := &sqltx.TxOptions{Dialect: sqltx.PostgreSQL(), Retries: 3} // for known drivers, the dialect is detected

	err := sqltx.Transact(context.Background(), db, opts, func(ctx context.Context) error {
		return place(ctx, "order-17")
	})
	fmt.Println(err)
	err = sqltx.Transact(context.Background(), db, opts, func(ctx context.Context) error {
		return errors.Join(place(ctx, "order-18"), errors.New("sold out"))
	})
	fmt.Println(err)
	// Output:
	// BEGIN
	// INSERT INTO orders (id) VALUES ('order-17')
	// COMMIT
	// <nil>
	// BEGIN
	// INSERT INTO orders (id) VALUES ('order-18')
	// ROLLBACK
	// sold out
}

// The same statement for every database.
func ExampleDialect_Bind() {
	for _, dialect := range []sqltx.Dialect{sqltx.PostgreSQL(), sqltx.MySQL(), sqltx.SQLite()} {
		fmt.Println(dialect.Bind("UPDATE orders SET status = ? WHERE id = ?"))
	}
	// Output:
	// UPDATE orders SET status = $1 WHERE id = $2
	// UPDATE orders SET status = ? WHERE id = ?
	// UPDATE orders SET status = ? WHERE id = ?
}

// printing is a database that prints its statements.
type printing struct{}

func (p printing) Connect(context.Context) (driver.Conn, error) { return p, nil }
func (p printing) Driver() driver.Driver                        { return nil }
func (p printing) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (p printing) Close() error                                 { return nil }
func (p printing) Begin() (driver.Tx, error)                    { return p, say("BEGIN") }
func (p printing) Commit() error                                { return say("COMMIT") }
func (p printing) Rollback() error                              { return say("ROLLBACK") }

func (p printing) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), say(statement)
}

func say(text string) error {
	_, err := fmt.Println(text)
	return err
}
