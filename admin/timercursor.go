package admin

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Cursor names the place of the timer in its list for TimerFilter.After.
func (t Timer) Cursor() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d %s", t.Slot, t.place().UnixMilli(), t.member))
}

// place is the time that orders the timer in its list.
func (t Timer) place() time.Time {
	if t.Decided.IsZero() {
		return t.Due
	}
	return t.Decided
}

// timerCursor is a place in a list of timers. The zero value is the beginning.
type timerCursor struct {
	slot   int
	at     time.Time
	member string
}

func parseTimerCursor(text string) (c timerCursor, err error) {
	plain, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.SplitN(string(plain), " ", 3)
	if err == nil && len(parts) == 3 {
		var ms int64
		c.slot, err = strconv.Atoi(parts[0])
		if err == nil {
			ms, err = strconv.ParseInt(parts[1], 10, 64)
		}
		c.at, c.member = time.UnixMilli(ms), parts[2]
	}
	if err != nil || len(parts) != 3 || c.slot < 0 {
		return c, fmt.Errorf("%.80q is not a cursor; use Timer.Cursor of a timer", text)
	}
	return c, nil
}

// includes reports whether the list before the cursor has the timer.
func (c timerCursor) includes(t Timer) bool {
	return t.Slot == c.slot && !c.at.IsZero() && t.place().Equal(c.at) && t.member <= c.member
}
