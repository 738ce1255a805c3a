package pretty

import "time"

// Time returns at in UTC, or the zero time if RFC 3339 cannot write its year. Corrupt data holds such times, and
// encoding/json fails for them.
func Time(at time.Time) time.Time {
	if at = at.UTC(); at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}
	}
	return at
}
