package sqltest

import (
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	// The drivers of the databases that this package starts.
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/luatx/luatx/internal/test/race"
	"github.com/luatx/luatx/sqltx"
)

// Database is a database for tests.
type Database struct {
	// Name is the name for subtests.
	Name string
	// Driver and DSN are the arguments of sql.Open.
	Driver, DSN string
	// Dialect is the dialect of the database.
	Dialect sqltx.Dialect
	// Locked means that the database has one writer at a time. A writer waits for the open writing transaction, so two are never
	// open at once.
	Locked bool
}

// Open opens the database and closes it when the test ends.
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

// SQLite returns a new SQLite database for the test.
func SQLite(t testing.TB) Database {
	t.Helper()
	return Database{Name: "sqlite", Driver: "sqlite", DSN: SQLiteDSN(filepath.Join(t.TempDir(), "test.db")), Dialect: sqltx.SQLite(), Locked: true}
}

// SQLiteDSN returns a DSN for a file whose transactions lock at once and wait for the lock.
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
