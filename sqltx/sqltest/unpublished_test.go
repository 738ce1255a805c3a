package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

const month = 30 * 24 * time.Hour

// outboxTable is an outbox with one old unpublished and one old published event.
type outboxTable struct {
	t    *testing.T
	d    sqltest.Database
	db   *sql.DB
	name string // for CleanupConfig.Table
}

func (o outboxTable) quoted() string {
	parts := strings.Split(o.name, ".")
	for i, part := range parts {
		parts[i] = o.d.Dialect.Quote + part + o.d.Dialect.Quote
	}
	return strings.Join(parts, ".")
}

func (o outboxTable) exec(format string, args ...any) {
	o.t.Helper()
	execute(o.t, o.db, fmt.Sprintf(format, args...))
}

// insert adds a row that is a month old.
func (o outboxTable) insert(published bool) {
	o.t.Helper()
	moment := strings.ReplaceAll(o.d.Dialect.Ago, "?", fmt.Sprint(month.Milliseconds()))
	o.exec("INSERT INTO %s (topic, event_type, data, attributes, published, created_at) VALUES ('t', 'e', '{}', '{}', %t, %s)", o.quoted(), published, moment)
}

// fill adds an unpublished and a published event.
func (o outboxTable) fill() {
	o.t.Helper()
	o.insert(false)
	o.insert(true)
}

func (o outboxTable) cleanup(condition string) {
	o.t.Helper()
	cfg := sqltx.CleanupConfig{DB: o.db, Table: o.name, Dialect: o.d.Dialect, Condition: condition}
	if n, err := sqltx.Cleanup(o.t.Context(), cfg); n != 1 || err != nil {
		o.t.Errorf("cleanup of %s with condition %q: %d rows deleted, %v; want the published event alone", o.name, condition, n, err)
	}
	if n := number(o.t, o.db, "SELECT count(*) FROM "+o.quoted()+" WHERE published = FALSE"); n != 1 {
		o.t.Errorf("cleanup of %s with condition %q left %d unpublished events, want 1", o.name, condition, n)
	}
}

// newSchema creates a schema for the test and returns its name.
func newSchema(t *testing.T, d sqltest.Database, db *sql.DB) string {
	t.Helper()
	if d.Name == "sqlite" {
		return "main"
	}
	name := sqltest.Table("schema")
	execute(t, db, "CREATE SCHEMA "+name)
	t.Cleanup(func() {
		drop := map[string]string{"postgres": "DROP SCHEMA " + name + " CASCADE", "mariadb": "DROP SCHEMA " + name}[d.Name]
		if _, err := db.ExecContext(context.Background(), drop); err != nil {
			t.Error(err)
		}
	})
	return name
}

func TestCleanupKeepsUnpublishedEventsOfAnyTable(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, func(t *testing.T, d sqltest.Database) {
		db := d.Open(t)
		schema := newSchema(t, d, db)
		for _, name := range []string{
			sqltest.Table("outbox"),
			"Order Events-" + sqltest.Table("x"),
			schema + "." + sqltest.Table("outbox"),
			schema + ".Order Events-" + sqltest.Table("x"),
		} {
			for _, condition := range []string{"", "AND published = true", "topic = 'u' OR topic = 't'", "published = TRUE OR published = FALSE"} {
				o := outboxTable{t, d, db, name}
				must(t, sqltx.InitOutbox(t.Context(), sqltx.OutboxConfig{DB: db, Table: name, Dialect: d.Dialect}))
				o.fill()
				o.cleanup(condition)
				o.exec("DROP TABLE %s", o.quoted())
			}
		}
	})
}

// TestCleanupReadsTheTableThatTheNameResolvesTo hides a table without the column published behind an outbox of the same
// name.
func TestCleanupReadsTheTableThatTheNameResolvesTo(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, func(t *testing.T, d sqltest.Database) {
		db := d.Open(t)
		db.SetMaxOpenConns(1) // the statements below change this connection
		o := outboxTable{t, d, db, sqltest.Table("outbox")}
		must(t, sqltx.InitInbox(t.Context(), sqltx.InboxConfig{DB: db, Table: o.name, Dialect: d.Dialect}))
		schema := newSchema(t, d, db)
		switch d.Name {
		case "postgres":
			o.exec("SET search_path TO %s, public", schema)
		case "mariadb":
			o.exec("USE %s", schema)
		case "sqlite":
			schema = "temp"
		}
		outbox := sqltx.OutboxConfig{DB: db, Table: schema + "." + o.name, Dialect: d.Dialect}
		must(t, sqltx.InitOutbox(t.Context(), outbox))
		o.fill()
		o.cleanup("")
	})
}

func TestCleanupFindsTheColumnPublishedInAnyCase(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, func(t *testing.T, d sqltest.Database) {
		o := outboxTable{t, d, d.Open(t), sqltest.Table("outbox")}
		column := d.Dialect.Quote + "Published" + d.Dialect.Quote
		o.exec("CREATE TABLE %s (created_at TIMESTAMP, %s BOOLEAN)", o.quoted(), column)
		t.Cleanup(func() { _, _ = o.db.ExecContext(context.Background(), "DROP TABLE "+o.quoted()) })
		for _, published := range []string{"TRUE", "FALSE", "NULL"} {
			o.exec("INSERT INTO %s VALUES ('2020-01-01 00:00:00', %s)", o.quoted(), published)
		}
		n, err := sqltx.Cleanup(t.Context(), sqltx.CleanupConfig{DB: o.db, Table: o.name, Dialect: d.Dialect})
		if n != 1 || err != nil {
			t.Errorf("%d rows deleted, %v; want 1", n, err)
		}
		if left := number(t, o.db, "SELECT count(*) FROM "+o.quoted()); left != 2 {
			t.Errorf("%d rows are left, want 2", left)
		}
	})
}

// TestCleanupReadsColumnsThatAMigrationAdded runs one background cleanup before and after the column exists.
func TestCleanupReadsColumnsThatAMigrationAdded(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, func(t *testing.T, d sqltest.Database) {
		o := outboxTable{t, d, d.Open(t), sqltest.Table("outbox")}
		o.exec("CREATE TABLE %s (id INTEGER, created_at TIMESTAMP)", o.quoted())
		t.Cleanup(func() { _, _ = o.db.ExecContext(context.Background(), "DROP TABLE "+o.quoted()) })
		o.exec("INSERT INTO %s VALUES (1, '2020-01-01 00:00:00')", o.quoted())
		ctx, cancel := context.WithCancel(t.Context())
		done, err := sqltx.StartCleanup(ctx, sqltx.CleanupConfig{
			DB: o.db, Table: o.name, Dialect: d.Dialect, Interval: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		defer func() {
			cancel()
			<-done
		}()
		gone := func(id int) func() bool {
			return func() bool {
				return number(t, o.db, fmt.Sprintf("SELECT count(*) FROM %s WHERE id = %d", o.quoted(), id)) == 0
			}
		}
		waitFor(t, "the old row is deleted", time.Minute, gone(1))
		o.exec("ALTER TABLE %s ADD COLUMN published BOOLEAN NOT NULL DEFAULT FALSE", o.quoted())
		o.exec("INSERT INTO %s VALUES (2, '2020-01-01 00:00:00', FALSE), (3, '2020-01-01 00:00:00', TRUE)", o.quoted())
		waitFor(t, "the published event is deleted", time.Minute, gone(3))
		if gone(2)() {
			t.Error("the cleanup deleted an unpublished event")
		}
	})
}
