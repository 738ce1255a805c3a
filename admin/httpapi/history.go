package httpapi

import (
	"cmp"
	"net/http"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/internal/pretty"
)

// history replies with a part of the history.
func (h *Handler) history(c *guard.Call) error {
	now, err := h.desk.Time(c.R.Context())
	if err != nil {
		return err
	}
	var r admin.HistoryRange
	for name, at := range map[string]*time.Time{"since": &r.Since, "until": &r.Until} {
		if text := c.Query.Get(name); text != "" {
			if *at, err = acts.Moment(text, now); err != nil {
				return guard.BadRequest("%s: %v", name, err)
			}
		}
	}
	r.Step, err = time.ParseDuration(cmp.Or(c.Query.Get("step"), "0s"))
	if err != nil || r.Step < 0 || r.Step > admin.HistoryKept {
		return guard.BadRequest("step %.80q is not a duration of at most 30 days; use a duration such as 15m or 1h", c.Query.Get("step"))
	}
	if !r.Since.IsZero() && r.Since.After(now) || !r.Since.IsZero() && !r.Until.IsZero() && r.Since.After(r.Until) {
		return guard.BadRequest("since is later than until or now; use an earlier time")
	}
	found, err := c.Op.History(c.R.Context(), r)
	if err != nil {
		return err
	}
	found.Since, found.Until, found.Total.At = pretty.Time(found.Since), pretty.Time(found.Until), pretty.Time(found.Total.At)
	for i := range found.Intervals {
		found.Intervals[i].At = pretty.Time(found.Intervals[i].At)
	}
	return c.Answer(http.StatusOK, found)
}
