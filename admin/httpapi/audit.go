package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
)

type recordJSON struct {
	Slot      int       `json:"slot"`
	At        time.Time `json:"at"`
	Operation string    `json:"operation"`
	Call      int       `json:"call"`
	Who       string    `json:"who"`
	Act       string    `json:"act"`
	Why       string    `json:"why"`
	Done      int       `json:"done"`
	Asked     int       `json:"asked"`
	IDs       []string  `json:"ids"`
}

// audit replies with the acts since a time, newest first.
func (h *Handler) audit(c *guard.Call) error {
	if err := c.Only("since", "limit"); err != nil {
		return err
	}
	since, err := time.ParseDuration(cmp.Or(c.Query.Get("since"), "24h"))
	if err != nil || since < 0 {
		return guard.BadRequest("since %.80q: use a duration as 90s or 24h", c.Query.Get("since"))
	}
	limit, err := c.Number("limit", pageLimit, 1, maxPage)
	if err != nil {
		return err
	}
	last := []recordJSON{}
	more := false
	for r, err := range c.Op.Audit(c.R.Context(), time.Now().Add(-since)) {
		if err != nil {
			return err
		}
		if len(last) == 2*limit { // the first half is of no use any more
			last = append(last[:0], last[limit:]...)
			more = true
		}
		last = append(last, newRecord(r))
	}
	if len(last) > limit {
		last, more = last[len(last)-limit:], true
	}
	slices.Reverse(last)
	return c.Answer(http.StatusOK, map[string]any{"records": last, "more": more})
}

func newRecord(r outbox.Record) recordJSON {
	j := recordJSON(r)
	j.At, j.IDs = pretty.Time(r.At), orEmpty(r.IDs)
	return j
}
