// Package sqltest has what a dialect of sqltx must pass, and starts databases for tests.
//
//	func TestMain(m *testing.M) { sqltest.Main(m) }   // stops the servers, then looks for leaked goroutines
//
//	func TestMine(t *testing.T) { sqltest.Conformance(t, sqltest.Database{...}) }  // a dialect of one's own
//
//	sqltest.Every(t, func(t *testing.T, db sqltest.Database) { ... })  // on PostgreSQL, MariaDB and SQLite
//
// It is a module of its own, which holds the drivers.
//
// # Which servers
//
// PostgreSQL is $LUATX_POSTGRES_BIN/postgres, else that on PATH or in /usr/lib/postgresql; MariaDB is
// $LUATX_MARIADB_BIN/mariadbd, else that on PATH. Where one is missing it is installed from the distribution (Debian and
// root, or SETUP=1); where that fails its tests skip with a line that says how to get it, and fail where CI is set.
// `go run ./sqltx/sqltest/found` does the same beforehand and prints one line.
//
// A server listens on a socket in a temporary directory, belongs to an unprivileged user where the tests are run by
// root, and is ended by process id when the tests end; on Linux the kernel ends it, too, when the test process dies.
// SQLite needs neither a server nor cgo.
package sqltest
