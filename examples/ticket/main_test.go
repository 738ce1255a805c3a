package main

import (
	"testing"

	"github.com/luatx/luatx/examples/internal/said"
)

func TestMain(m *testing.M) { said.Main(m) }

func TestProgramPrintsTheOutputInItsComment(t *testing.T) {
	t.Parallel()
	said.Check(t, run)
}
