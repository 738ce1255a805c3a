package main

import (
	"testing"

	"github.com/luatx/luatx/examples/internal/said"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { said.Main(m) }

func TestProgramPrintsTheOutputInItsComment(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	said.Check(t, run)
}
