package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
)

// BenchmarkConsole measures pages of 100,000 parked events of a few kinds.
func BenchmarkConsole(b *testing.B) {
	redistest.Need(b)
	client := redistest.Single(b, redistest.Own()).Client(b)
	tr, op := admintest.Service(b, client, 16)
	for i := range 100 {
		ids := make([]string, 1000)
		for j := range ids {
			ids[j] = fmt.Sprintf("%d-%d", i, j)
		}
		admintest.Park(b, tr, fmt.Sprint("a", i), fmt.Sprint("http_", 400+i%7), fmt.Sprint("type", i%5), ids...)
	}
	for name, to := range map[string]string{
		"overview": "", "parked": "parked", "class": "parked?class=http_403", "destination": "parked?type=type3", "event": "event?id=7-7", "preview": "preview-rearm?class=http_403",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s := newSite(b, op, nil) // with nothing cached
				if status, page := s.get(b, to); status >= 400 || status == http.StatusOK && !strings.Contains(page, "<main") {
					b.Fatalf("%s: %d", to, status)
				}
			}
		})
	}
}
