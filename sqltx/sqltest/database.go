package sqltest

import (
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	// The drivers of the databases that are started here.
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/luatx/luatx/internal/test/race"
	"github.com/luatx/luatx/sqltx"
)

// Database is a database that tests may fill.
type Database struct {
	// Name is its name, for subtests.
	Name string
	// Driver and DSN are what sql.Open takes.
	Driver, DSN string
	// Dialect is its dialect.
	Dialect sqltx.Dialect
	// Locked says that it has one writer at a time: who writes waits for the transaction that did, so that no two are
	// open at once.
	Locked bool
}

// Open opens the database; it is closed when the test ends.
func (d Database) Open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	must(t, err)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Table returns a name that no other test uses.
func Table(kind string) string { return kind + "_" + strings.ToLower(rand.Text()[:10]) }

// Postgres returns the PostgreSQL server of this test process.
func Postgres(t testing.TB) Database {
	t.Helper()
	return Database{Name: "postgres", Driver: "pgx", DSN: need(t, postgres), Dialect: sqltx.PostgreSQL()}
}

// MariaDB returns the MariaDB server of this test process.
func MariaDB(t testing.TB) Database {
	t.Helper()
	return Database{Name: "mariadb", Driver: "mysql", DSN: need(t, mariadb), Dialect: sqltx.MySQL()}
}

// SQLite returns an SQLite database of the test's own.
func SQLite(t testing.TB) Database {
	t.Helper()
	return Database{Name: "sqlite", Driver: "sqlite", DSN: SQLiteDSN(filepath.Join(t.TempDir(), "test.db")), Dialect: sqltx.SQLite(), Locked: true}
}

// SQLiteDSN opens a file such that transactions take their lock at once and wait for it.
func SQLiteDSN(path string) string {
	return "file:" + path + "?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
}

// Every runs a test on each database, in parallel.
func Every(t *testing.T, test func(t *testing.T, db Database)) {
	t.Helper()
	for _, open := range []struct {
		name     string
		database func(testing.TB) Database
	}{{"postgres", Postgres}, {"mariadb", MariaDB}, {"sqlite", SQLite}} {
		t.Run(open.name, func(t *testing.T) {
			t.Parallel()
			if race.On && open.name == "sqlite" {
				t.Skip("SQLite is translated from C to Go, which the race detector slows down too much")
			}
			test(t, open.database(t))
		})
	}
}
