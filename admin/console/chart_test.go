package console

import (
	"testing"
	"time"

	"github.com/luatx/luatx/admin"
)

func TestChartDrawsTimesAndValuesAndLeavesGaps(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_700_000_000, 0)
	at := func(minutes int, parked, sent int64) admin.HistoryInterval {
		i := admin.HistoryInterval{At: begin.Add(time.Duration(minutes) * time.Minute), Duration: time.Minute}
		if i.Outcomes.Sent = sent; parked >= 0 {
			i.Measured = &admin.Measured{Parked: parked}
		}
		return i
	}
	h := admin.History{
		Since: begin, Until: begin.Add(10 * time.Minute), Step: time.Minute,
		Intervals: []admin.HistoryInterval{at(0, 0, 60), at(1, 50, 120), at(2, -1, 0), at(7, 100, 0), at(8, 25, 0)},
	}
	for _, c := range charts(admin.History{Since: begin, Until: h.Until, Step: time.Minute, Intervals: h.Intervals[:2]}, "now") {
		if len(c.Lines) != 0 {
			t.Errorf("chart of two intervals has lines: %+v", c)
		}
	}
	drawn := charts(h, "now")
	if parked := drawn[2]; parked.Lines[0].Path != "M60.0 97.0h.1L120.0 50.0M480.0 3.0h.1L540.0 73.5" || parked.Top != "100" || parked.From != "10 min earlier" ||
		parked.To != "now" || parked.Label != "Parked over 10 min: parked 25 at the end, held back 0 at the end; maximum 100" {
		t.Errorf("%+v", parked)
	}
	if rate := drawn[0]; rate.Lines[1].Path != "M60.0 50.0h.1L120.0 3.0L180.0 97.0M480.0 97.0h.1L540.0 97.0" || rate.Lines[1].Now != "0" || rate.Top != "2.0" {
		t.Errorf("%+v", rate)
	}
}
