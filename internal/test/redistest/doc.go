// Package redistest starts real Redis servers for tests: one server, a master with a replica, a cluster, a sentinel
// group. It also wraps the fault-injecting proxy of package respproxy, and compares whole data sets.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }      // stops shared servers, then looks for leaked goroutines
//
//	srv := redistest.Shared(t)                             // one server for the test process: use Tag and Namespace
//	srv := redistest.Single(t)                             // a server of the test's own
//	srv := redistest.Single(t, redistest.Own())            // the same, never an external one: may be killed or flushed
//	srv := redistest.Single(t, redistest.Config("maxmemory 3mb"))
//	master, replica := redistest.WithReplica(t)
//	cluster := redistest.SharedCluster(t)                  // or Cluster(t), to break it
//	group := redistest.Sentinel(t)
//
//	redistest.Every(t, test)                               // on a server, on a cluster and on miniredis
//
//	client := srv.Client(t)                                // closed when the test ends
//	tag, ns := redistest.Tag(t), redistest.Namespace(t)
//
//	proxy := redistest.Proxy(t, srv.Addr())                // see package respproxy
//	before, err := redistest.Dump(ctx, client, "")         // everything, canonical
//	diff := redistest.Diff(before, after)                  // "" when equal
//	redistest.Eventually(t, "what", condition)             // no sleeps
//
// # Which server
//
// The program is $LUATX_REDIS_SERVER, else redis-server or valkey-server on PATH. Where there is none it is installed
// from the distribution (Debian and root, or SETUP=1; never with SETUP=0); where that fails, tests skip with a line that says how to get
// one, and fail where CI is set. `go run ./internal/test/redistest/found` does the same beforehand and prints one line.
//
// With LUATX_TEST_REDIS=host:port, Shared and Single without options use that running server; everything that needs
// servers of its own is skipped.
//
// Every server listens on a loopback port, works in a temporary directory, and is ended by process id when its test
// ends. On Linux the kernel ends it, too, when the test process dies.
package redistest
