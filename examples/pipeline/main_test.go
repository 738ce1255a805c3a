package main

import (
	"bytes"
	"testing"

	"github.com/luatx/luatx/examples/internal/said"
)

func TestMain(m *testing.M) { said.Main(m) }

// TestPipeline holds that the program prints what its comment says.
func TestPipeline(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	said.Require(t, out.String())
}
