package console

import (
	"testing"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/outbox"
)

func TestChartDrawsTimesAndValuesOfItsSamples(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_700_000_000, 0)
	at := func(seconds int, parked int64, rates *admin.Rates) desk.Sample {
		return desk.Sample{Stats: admin.Stats{At: begin.Add(time.Duration(seconds) * time.Second), Counts: outbox.Counts{Parked: parked}}, Rates: rates}
	}
	some := []desk.Sample{at(0, 0, nil), at(10, 50, &admin.Rates{Sent: 8}), at(40, 100, &admin.Rates{Sent: 2, Enqueued: 4})}
	for _, c := range charts(some[:2]) {
		if len(c.Lines) != 0 {
			t.Errorf("two samples are drawn: %+v", c)
		}
	}
	drawn := charts(some)
	if parked := drawn[2]; parked.Lines[0].Points != "0.0,97.0 150.0,50.0 600.0,3.0" || parked.Top != "100" || parked.From != "40 s ago" ||
		parked.Label != "Parked over 40 s: parked 100 now; at most 100" {
		t.Errorf("%+v", parked)
	}
	if rate := drawn[0]; rate.Lines[1].Points != "150.0,3.0 600.0,73.5" || rate.Lines[0].Now != "4.0" || rate.Lines[1].Now != "2.0" {
		t.Errorf("%+v", rate)
	}
}
