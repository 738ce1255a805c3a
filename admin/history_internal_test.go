package admin

import (
	"testing"
	"time"

	"github.com/luatx/luatx/internal/history"
)

func TestHistoryHasFineStepsForTheLastHourAndCoarseOnesOtherwise(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 9, 31, 7, 0, time.UTC)
	at := func(hour, minute, second int) time.Time {
		return time.Date(2026, 3, 1, hour, minute, second, 0, time.UTC)
	}
	for _, c := range []struct {
		name         string
		r            HistoryRange
		since, until time.Time
		step         time.Duration
	}{
		{"the default", HistoryRange{}, at(8, 31, 0), at(9, 30, 50), 10 * time.Second},
		{"the last hour", HistoryRange{Since: now.Add(-time.Hour)}, at(8, 31, 0), at(9, 30, 50), 10 * time.Second},
		{"a step of 11 seconds", HistoryRange{Since: at(9, 0, 3), Step: 11 * time.Second}, at(9, 0, 0), at(9, 30, 50), 20 * time.Second},
		{"a step of 16 minutes", HistoryRange{Since: at(9, 0, 3), Step: 16 * time.Minute}, at(9, 0, 0), now, 30 * time.Minute},
		{"the last day", HistoryRange{Since: now.Add(-24 * time.Hour)}, at(9, 30, 0).Add(-24 * time.Hour), now, 15 * time.Minute},
		{"an hour of the past", HistoryRange{Since: at(2, 30, 0), Until: at(3, 30, 0)}, at(2, 30, 0), at(3, 30, 0), 15 * time.Minute},
		{"an end in the future", HistoryRange{Since: at(3, 0, 0), Until: at(20, 0, 0)}, at(3, 0, 0), now, 15 * time.Minute},
		{"older than the history", HistoryRange{Since: now.AddDate(-1, 0, 0), Until: now.AddDate(-1, 0, 1)}, at(9, 30, 0).Add(-HistoryKept), at(9, 30, 0).Add(-HistoryKept), 15 * time.Minute},
	} {
		_, h, err := c.r.resolve(now)
		if err != nil || !h.Since.Equal(c.since) || !h.Until.Equal(c.until) || h.Step != c.step {
			t.Errorf("%s: %v to %v by %v, %v", c.name, h.Since, h.Until, h.Step, err)
		}
	}
}

func TestIntervalsAddUpCountsAndKeepTheHighestMeasurements(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	at := func(minute int, sent, enqueued, events int64) history.Bucket {
		return history.Bucket{
			At: begin.Add(time.Duration(minute) * time.Minute), Destinations: map[string]history.Outcomes{"bank": {Sent: sent}},
			Classes: map[string]int64{"http_503": 1}, Others: history.Outcomes{Failed: 2}, OtherClasses: 3,
			Gauges: &history.Gauges{Enqueued: enqueued, Events: events, Oldest: time.Duration(events) * time.Second},
		}
	}
	h := History{Since: begin, Until: begin.Add(95 * time.Minute), Step: 30 * time.Minute}
	silent := at(30, 5, 0, 0)
	silent.Gauges = nil
	h.fill([]history.Bucket{at(-15, 99, 1000, 99), at(0, 1, 1900, 7), at(15, 2, 2800, 3), silent, at(90, 4, 100, 1)})
	if len(h.Intervals) != 3 {
		t.Fatalf("intervals = %+v", h.Intervals)
	}
	first := h.Intervals[0]
	if first.Destinations["bank"].Sent != 3 || first.Outcomes != (Outcomes{Sent: 3, Failed: 4}) || first.Classes["http_503"] != 2 || first.OtherFailures != 6 {
		t.Errorf("first = %+v", first)
	}
	if m := first.Measured; m.Events != 7 || m.Oldest != 7*time.Second || m.Enqueued != 1 { // 1,800 events in 30 minutes
		t.Errorf("measured = %+v", m)
	}
	if h.Intervals[1].Measured != nil {
		t.Errorf("h.Intervals[1].Measured = %+v", h.Intervals[1].Measured)
	}
	if last := h.Intervals[2]; last.Duration != 5*time.Minute || last.Measured.Enqueued != 0 { // shards were deleted
		t.Errorf("last = %+v", last)
	}
	if h.Total.Destinations["bank"].Sent != 12 || h.Total.Measured.Events != 7 || h.Total.Measured.Enqueued != 1 || h.Total.Duration != 95*time.Minute {
		t.Errorf("total = %+v", h.Total)
	}
}
