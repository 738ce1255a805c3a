package admintest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/redistest"
)

// CPU returns the CPU time that this process and the servers of a client need for an act: the least of three runs. On an idle machine
// the act takes about as long. Nothing else may run in the process.
func CPU(t testing.TB, servers redis.UniversalClient, act func()) time.Duration {
	t.Helper()
	used := measure.ServerCPU(servers)
	spent := func() time.Duration {
		server, err := used(redistest.Soon(t))
		Must(t, err)
		return server + measure.ClientCPU()
	}
	least := time.Hour
	for range 3 {
		before := spent()
		act()
		least = min(least, spent()-before)
	}
	return least
}
