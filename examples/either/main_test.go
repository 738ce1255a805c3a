package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/luatx/luatx/sqltx/sqltest"
)

func TestMain(m *testing.M) { sqltest.Main(m) }

const want = "messages          120\norders entered    100 of 100\nspent             29550 of 29550 pence\nevents published  100\n"

func TestServicePrintsTheSameOnEveryStore(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]func(t *testing.T) []string{
		"redis":  func(*testing.T) []string { return nil },
		"sqlite": func(*testing.T) []string { return []string{"-store", "sql"} },
		"mariadb": func(t *testing.T) []string {
			return []string{"-store", "sql", "-dsn", "mysql://" + fresh(t, sqltest.MariaDB(t))}
		},
		"postgres": func(t *testing.T) []string {
			return []string{"-store", "sql", "-dsn", fresh(t, sqltest.Postgres(t))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := run(t.Context(), args(t), &out); err != nil || out.String() != want {
				t.Errorf("%v\n%s\nwant\n%s", err, out.String(), want)
			}
		})
	}
	if err := run(t.Context(), []string{"-store", "paper"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "use redis or sql") {
		t.Error(err)
	}
}

// fresh creates a database for the test and returns its DSN.
func fresh(t *testing.T, d sqltest.Database) string {
	t.Helper()
	name := sqltest.Table("either")
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(context.Background(), fmt.Sprintf("CREATE DATABASE %s", name)); err != nil {
		t.Fatal(err)
	}
	if d.Driver == "mysql" {
		return strings.TrimSuffix(d.DSN, "luatx") + name
	}
	return strings.Replace(d.DSN, "dbname=postgres", "dbname="+name, 1)
}
