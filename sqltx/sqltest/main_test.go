package sqltest_test

import (
	"os"
	"testing"

	"github.com/luatx/luatx/sqltx/sqltest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		os.Exit(runChild())
	}
	sqltest.Main(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryDatabasePassesTheSuite(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, sqltest.Conformance)
}

// long reports whether tests take as long as they need to be conclusive, instead of a few seconds.
var long = os.Getenv("LUATX_VERIFY") != ""

// size returns the size of a test: short in `make test`.
func size(short, full int) int {
	if long {
		return full
	}
	return short
}
