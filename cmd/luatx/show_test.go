package main

import (
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

func TestParkedShowPrintsNestedBodyWithoutIndentingIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t).Addr())
	nested := strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)
	line := strings.Replace(lines("network", "1"), `"type":"sold"`, `"type":"sold","data":`+nested, 1)
	s.acts(0, line, "parked", "import", "-", "--yes")
	args := append([]string{"parked", "show", "1", "--body", "--as", "alice"}, s.flags...)
	status, out, errs := run(redistest.Soon(t), "", args...)
	if status != 0 || len(out) > 1<<20 || !strings.Contains(out, nested) {
		t.Errorf("status %d, %d bytes: %s", status, len(out), errs)
	}
}
