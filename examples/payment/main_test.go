package main

import (
	"testing"

	"github.com/luatx/luatx/examples/internal/said"
)

func TestMain(m *testing.M) { said.Main(m) }

// TestPayment holds that the program prints what its comment says.
func TestPayment(t *testing.T) {
	t.Parallel()
	said.Check(t, run)
}
