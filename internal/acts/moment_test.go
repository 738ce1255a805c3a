package acts_test

import (
	"testing"
	"time"

	"github.com/luatx/luatx/internal/acts"
)

func TestMomentReadsDurationsTimesOfDayAndTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"24h":                  time.Date(2026, 2, 28, 9, 30, 0, 0, time.UTC),
		"0s":                   now,
		"03:00":                time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC),
		"22:15":                time.Date(2026, 2, 28, 22, 15, 0, 0, time.UTC),
		"22:15:30":             time.Date(2026, 2, 28, 22, 15, 30, 0, time.UTC),
		"09:30":                now,
		"03:00+02:00":          time.Date(2026, 3, 1, 1, 0, 0, 0, time.UTC),
		"11:00+02:00":          time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC),
		"23:00-08:00":          time.Date(2026, 3, 1, 7, 0, 0, 0, time.UTC),
		"2026-02-27":           time.Date(2026, 2, 27, 0, 0, 0, 0, time.UTC),
		"2026-02-27 03:00:10":  time.Date(2026, 2, 27, 3, 0, 10, 0, time.UTC),
		"2026-02-27T03:00:10":  time.Date(2026, 2, 27, 3, 0, 10, 0, time.UTC),
		"2026-02-27 03:00":     time.Date(2026, 2, 27, 3, 0, 0, 0, time.UTC),
		"2026-02-27T03:00:10Z": time.Date(2026, 2, 27, 3, 0, 10, 0, time.UTC),
	} {
		if got, err := acts.Moment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1h", "soon", "25:00", "2026-02-30", "\x00"} {
		if got, err := acts.Moment(text, now); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestTimeOfDayIsWithinTheLast24HoursInEveryZone(t *testing.T) {
	t.Parallel()
	for hour := range 24 {
		now := time.Date(2026, 3, 1, hour, 30, 0, 0, time.UTC)
		for _, text := range []string{"00:15", "12:30", "23:45", "01:00+02:00", "12:30+14:00", "23:45+05:30", "01:00-08:00", "23:45-12:00"} {
			at, err := acts.Moment(text, now)
			if ago := now.Sub(at); err != nil || ago < 0 || ago >= 24*time.Hour {
				t.Errorf("%s at %s is %s before, %v", text, now.Format(time.TimeOnly), ago, err)
			}
		}
	}
}
