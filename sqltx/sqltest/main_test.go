package sqltest_test

import (
	"testing"

	"github.com/luatx/luatx/sqltx/sqltest"
)

func TestMain(m *testing.M) { sqltest.Main(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	sqltest.Every(t, sqltest.Conformance)
}
