package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/race"
)

// patience bounds what a test waits for. Under the race detector everything takes several times as long.
var patience = func() time.Duration {
	if race.On {
		return 2 * time.Minute
	}
	return 30 * time.Second
}()

// Every runs a test on one server, on a cluster and on miniredis, in parallel. The servers are shared: the test uses
// keys of its own.
func Every(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Helper()
	Servers(t, test)
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		_, client := Mini(t)
		test(t, client)
	})
}

// Servers is Every without miniredis.
func Servers(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, Shared(t).Client(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, SharedCluster(t).Client(t))
	})
}

// Mini returns a miniredis of the test's own, and a client of it.
func Mini(t testing.TB) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	server := miniredis.RunT(t)
	return server, closed(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
}

// Soon returns a context that bounds what a test waits for, generously.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits for a condition, and ends the test if it does not become true in time.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("timed out waiting for: %s", what)
		case <-ticker.C:
		}
	}
}
