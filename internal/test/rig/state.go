package rig

import (
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// Dump returns the state of a Transactor's namespace.
func Dump(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor) redistest.State {
	t.Helper()
	state, err := redistest.Dump(t.Context(), client, tr.Config().Namespace+"*")
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// NoTrace fails the test if the state differs from before.
func NoTrace(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, before redistest.State) {
	t.Helper()
	if diff := redistest.Diff(before, Dump(t, client, tr)); diff != "" {
		t.Errorf("left a trace:\n%s", diff)
	}
}
