// Package sqltest has the conformance tests for dialects of sqltx, and starts databases for tests.
//
//	func TestMain(m *testing.M) { sqltest.Main(m) }   // stops the servers, then looks for leaked goroutines
//
//	func TestMine(t *testing.T) { sqltest.Conformance(t, sqltest.Database{...}) }  // a custom dialect
//
//	sqltest.Every(t, func(t *testing.T, db sqltest.Database) { ... })  // on PostgreSQL, MariaDB and SQLite
//
// The package is a separate module, because it imports the drivers.
//
// # Which servers
//
// PostgreSQL is $LUATX_POSTGRES_BIN/postgres, or otherwise the one on PATH or in /usr/lib/postgresql. MariaDB is
// $LUATX_MARIADB_BIN/mariadbd, or otherwise the one on PATH. The package installs a missing server from the distribution (on
// Debian and as root, or with SETUP=1). If that fails, its tests are skipped with a line that explains how to install it. If
// CI is set, they fail instead. `go run ./sqltx/sqltest/found` installs missing servers beforehand and prints one line.
//
// A server listens on a socket in a temporary directory. If root runs the tests, the server belongs to an unprivileged user.
// It is stopped by process id when the tests end. On Linux, the kernel also stops it when the test process dies. SQLite needs
// neither a server nor cgo.
package sqltest
