package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/mysql"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

func TestMigrationToolsCreateAndDropWorkingTables(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, func(t *testing.T, d sqltest.Database) {
		for name, tool := range map[string]func(t *testing.T, d sqltest.Database) (up, down func() error){"goose": gooseOn, "migrate": migrateOn} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := alone(t, d)
				up, down := tool(t, d)
				must(t, up())
				useDefaultTables(t, d)
				must(t, down())
				for _, table := range []string{sqltx.DefaultInboxTable, sqltx.DefaultOutboxTable} {
					if err := d.Open(t).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(new(int)); err == nil {
						t.Errorf("%s is still there", table)
					}
				}
			})
		}
	})
}

// alone returns a separate database on the same server.
func alone(t *testing.T, d sqltest.Database) sqltest.Database {
	t.Helper()
	name := sqltest.Table("migrated")
	switch d.Name {
	case "postgres":
		execute(t, d.Open(t), "CREATE DATABASE "+name)
		d.DSN = strings.Replace(d.DSN, "dbname=postgres", "dbname="+name, 1)
	case "mariadb":
		execute(t, d.Open(t), "CREATE DATABASE "+name)
		d.DSN = path.Join(path.Dir(d.DSN), name) + "?multiStatements=true"
	default:
		d.DSN = sqltest.SQLiteDSN(filepath.Join(t.TempDir(), name))
	}
	return d
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// directory returns the directory of the dialect's migrations.
func directory(d sqltest.Database) string {
	return map[string]string{"postgres": "postgres", "mariadb": "mysql", "sqlite": "sqlite"}[d.Name]
}

func gooseOn(t *testing.T, d sqltest.Database) (up, down func() error) {
	t.Helper()
	files, err := fs.Sub(sqltx.Migrations, "migrations/goose/"+directory(d))
	must(t, err)
	dialect := map[string]goose.Dialect{"postgres": goose.DialectPostgres, "mariadb": goose.DialectMySQL, "sqlite": goose.DialectSQLite3}[d.Name]
	provider, err := goose.NewProvider(dialect, d.Open(t), files)
	must(t, err)
	up = func() error { _, err := provider.Up(t.Context()); return err }
	down = func() error { _, err := provider.DownTo(t.Context(), 0); return err }
	return up, down
}

func migrateOn(t *testing.T, d sqltest.Database) (up, down func() error) {
	t.Helper()
	files, err := iofs.New(sqltx.Migrations, "migrations/migrate/"+directory(d))
	must(t, err)
	db := d.Open(t)
	var driver database.Driver
	switch d.Name {
	case "postgres":
		driver, err = pgx.WithInstance(db, &pgx.Config{})
	case "mariadb":
		driver, err = mysql.WithInstance(db, &mysql.Config{})
	default:
		driver, err = sqlite.WithInstance(db, &sqlite.Config{})
	}
	must(t, err)
	m, err := migrate.NewWithInstance("iofs", files, d.Name, driver)
	must(t, err)
	t.Cleanup(func() { _, _ = m.Close() }) // closes the connection that it holds
	return m.Up, m.Down
}

// useDefaultTables runs a message through inbox and outbox twice, and publishes its event.
func useDefaultTables(t *testing.T, d sqltest.Database) {
	t.Helper()
	db := d.Open(t)
	inbox := sqltx.InboxConfig{DB: db, Subscriber: "orders", Dialect: d.Dialect}
	outbox := sqltx.OutboxConfig{DB: db, Topic: "events", Dialect: d.Dialect}
	must(t, errors.Join(inbox.Init(t.Context()), outbox.Init(t.Context())))
	handle := sqltx.TxMiddleware(db, nil).Wrap(sqltx.InboxMiddleware(inbox).Wrap(sqltx.OutboxMiddleware(outbox).Wrap(
		func(context.Context, *message.Message) ([]*message.Message, error) {
			return []*message.Message{message.New(map[string]int{"n": 1}, message.Attributes{message.AttrID: "out", message.AttrType: "t", message.AttrSource: "s"}, nil)}, nil
		})))
	for range 2 {
		in := message.New("in", message.Attributes{message.AttrID: "in", message.AttrType: "t", message.AttrSource: "s"}, nil)
		_, err := handle(t.Context(), in)
		must(t, err)
	}
	events, stop := sourceOf(t, db, "") // the default table
	(<-events).Ack()
	stop()
	for state, want := range map[string]int{"TRUE": 1, "FALSE": 0} {
		if n := number(t, db, "SELECT COUNT(*) FROM outbox WHERE published = "+state); n != want {
			t.Errorf("%d events are published = %s, want %d", n, state, want)
		}
	}
}
