package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"

	// The drivers for the DSNs.
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/service"
	"github.com/luatx/luatx/sqltx"
)

// sqlBook is the book in an SQL database.
type sqlBook struct {
	db   *sql.DB
	bind func(statement string) string
}

func (b sqlBook) Place(ctx context.Context, order PlaceOrder) error {
	_, err := sqltx.ExecutorFromContext(ctx, b.db).ExecContext(ctx,
		b.bind("INSERT INTO orders (customer, id, pence) VALUES (?, ?, ?)"), order.Customer, order.Order, order.Pence)
	return err
}

// Spent returns the number of a customer's orders, and their total price.
func (b sqlBook) Spent(ctx context.Context, customer string) (orders int, pence int64, err error) {
	err = sqltx.ExecutorFromContext(ctx, b.db).QueryRowContext(ctx,
		b.bind("SELECT count(*), COALESCE(SUM(pence), 0) FROM orders WHERE customer = ?"), customer).Scan(&orders, &pence)
	return orders, pence, err
}

// onSQL returns the service on a database. Without a DSN it uses SQLite with a file of its own.
func onSQL(ctx context.Context, dsn string) (store, error) {
	dir, err := os.MkdirTemp("", "either-")
	if err != nil {
		return store{}, err
	}
	driver, source := driverOf(dsn, filepath.Join(dir, "orders.db"))
	db, err := sql.Open(driver, source)
	if err != nil {
		return store{}, errors.Join(err, os.RemoveAll(dir))
	}
	closing := func() error { return errors.Join(db.Close(), os.RemoveAll(dir)) }
	dialect, err := sqltx.DialectOf(db)
	if err != nil {
		return store{}, errors.Join(err, closing())
	}
	events := sqltx.NewOutboxPublisher(sqltx.OutboxPublisherConfig{DB: db})
	inbox := sqltx.InboxConfig{DB: db}
	outbox := sqltx.OutboxConfig{DB: db, Topic: "order-events", Publisher: events}
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (customer VARCHAR(64) NOT NULL, id VARCHAR(64) PRIMARY KEY, pence BIGINT NOT NULL)")
	if err := errors.Join(err, inbox.Init(ctx), outbox.Init(ctx)); err != nil {
		return store{}, errors.Join(err, closing())
	}
	mw := message.Chain(sqltx.TxMiddleware(db, &sqltx.TxOptions{Retries: 3}), sqltx.InboxMiddleware(inbox), sqltx.OutboxMiddleware(outbox))
	return store{
		book: sqlBook{db, dialect.Bind},
		config: func(publisher relay.Publisher) service.Config {
			drive := func(ctx context.Context) error { return relay.Drive(ctx, events, publisher, relay.DriveConfig{}) }
			return service.Config{Mode: service.Other, Given: service.Given{Middleware: &mw, Relay: service.RunFunc(drive), Check: db.PingContext}}
		},
		close: closing,
	}, nil
}

// driverOf returns the driver for a DSN, and the DSN in the driver's form.
func driverOf(dsn, file string) (driver, source string) {
	if rest, ok := strings.CutPrefix(dsn, "mysql://"); ok {
		return "mysql", rest
	}
	if dsn == "" {
		return "sqlite", "file:" + file + "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
	}
	return "pgx", dsn
}
