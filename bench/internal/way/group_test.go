package way

import (
	"testing"
	"time"

	"github.com/luatx/luatx/bench/internal/suite"
)

func TestShortRunReturnsEveryFigureAndWay(t *testing.T) {
	t.Parallel()
	report, err := Group().Run(t.Context(), suite.Env{
		Short: true, Rounds: 1, Per: 20 * time.Millisecond, Wanted: func(string) bool { return true }, Log: t.Logf,
	})
	must(t, err)
	for i, c := range comparisons() {
		for figure := range c.figures {
			if report.Figures[figure].Median <= 0 {
				t.Errorf("%s is %v", figure, report.Figures[figure])
			}
		}
		if rows := len(report.Grids[i].Rows); rows != len(c.ways) {
			t.Errorf("%s: %d rows for %d ways", c.name, rows, len(c.ways))
		}
	}
}
