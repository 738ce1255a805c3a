package main

import (
	"testing"

	"github.com/luatx/luatx/examples/internal/said"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { said.Main(m) }

// TestCluster holds that the program prints what its comment says.
func TestCluster(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	said.Check(t, run)
}
