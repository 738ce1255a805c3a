package acts

import (
	"fmt"
	"time"
)

// clockLayouts are formats of a time of day. dayLayouts are formats of a date and a time. A time without a zone is in
// UTC.
var (
	clockLayouts = []string{"15:04", "15:04Z07:00", "15:04:05", "15:04:05Z07:00"}
	dayLayouts   = []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02"}
)

// Moment reads a time in the past. The text is a duration before now, such as 24h, a time within the last 24 hours, such as
// 03:00 or 03:00+02:00, or a date and a time, such as 2006-01-02T15:04:05Z. A time without a zone is in UTC.
func Moment(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range dayLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	for _, layout := range clockLayouts {
		clock, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		today := now.In(clock.Location())
		at := time.Date(today.Year(), today.Month(), today.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, clock.Location())
		if at.After(now) {
			at = at.AddDate(0, 0, -1)
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%.80q is not a time: use a duration as 24h, a time of day as 03:00, or both a day and a time as 2006-01-02T15:04:05Z", text)
}
