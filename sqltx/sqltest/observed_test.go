package sqltest_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
)

// observedDriver is a connector that records how many rows each transaction has deleted. Only one goroutine uses it at a time.
type observedDriver struct {
	inner   driver.Driver
	dsn     string
	deleted []int // by transaction
}

func (o *observedDriver) Connect(context.Context) (driver.Conn, error) {
	conn, err := o.inner.Open(o.dsn)
	return &observedConn{conn, o}, err
}

func (o *observedDriver) Driver() driver.Driver { return o.inner }

type observedConn struct {
	driver.Conn

	observed *observedDriver
}

func (c *observedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.observed.deleted = append(c.observed.deleted, 0)
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *observedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *observedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	if errors.Is(err, driver.ErrSkip) { // this driver prepares statements with arguments
		stmt, prepareErr := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
		if prepareErr != nil {
			return nil, prepareErr
		}
		result, err = stmt.(driver.StmtExecContext).ExecContext(ctx, args)
		err = errors.Join(err, stmt.Close())
	}
	if err == nil && strings.Contains(query, "DELETE") {
		n, _ := result.RowsAffected() // the drivers always return it
		c.observed.deleted[len(c.observed.deleted)-1] += int(n)
	}
	return result, err
}
