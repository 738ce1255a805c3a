package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
)

// audit replies with the records since a time, newest first.
func (h *Handler) audit(c *guard.Call) error {
	since, err := time.ParseDuration(cmp.Or(c.Query.Get("since"), "24h"))
	if err != nil || since < 0 {
		return guard.BadRequest("since %.80q is not a positive duration; use a duration such as 90s or 24h", c.Query.Get("since"))
	}
	limit, err := c.Number("limit", pageLimit, 1, maxPage)
	if err != nil {
		return err
	}
	last := []acts.Record{}
	more := false
	for r, err := range c.Op.Audit(c.R.Context(), time.Now().Add(-since)) {
		if err != nil {
			return err
		}
		if len(last) == 2*limit { // the first half is not needed any more
			last = append(last[:0], last[limit:]...)
			more = true
		}
		last = append(last, acts.NewRecord(r))
	}
	if len(last) > limit {
		last, more = last[len(last)-limit:], true
	}
	slices.Reverse(last)
	return c.Answer(http.StatusOK, map[string]any{"records": last, "more": more})
}
