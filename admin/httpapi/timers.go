package httpapi

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/pretty"
)

// timers replies with the numbers of timers, and a page of a list.
func (h *Handler) timers(c *guard.Call) error {
	f := admin.TimerFilter{Text: c.Query.Get("text")}
	var err error
	if f.Decided, err = c.Flag("decided"); err != nil {
		return err
	}
	if f.Due, err = c.Flag("due"); err != nil {
		return err
	}
	for _, text := range c.Query["slot"] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return guard.BadRequest("slot %.80q is not a number", text)
		}
		f.Slots = append(f.Slots, n)
	}
	if err := h.desk.Ours(f.Slots...); err != nil {
		return err
	}
	f.After = c.Query.Get("cursor")
	limit, err := c.Number("limit", pageLimit, 1, maxPage)
	if err != nil {
		return err
	}
	stats, err := c.Op.TimerStats(c.R.Context())
	if err != nil {
		return err
	}
	page, err := desk.Timers(c.R.Context(), c.Op, f, limit)
	if err != nil {
		return err
	}
	for i := range page.Timers {
		page.Timers[i] = newTimer(page.Timers[i])
	}
	stats.Next = pretty.Time(stats.Next)
	return c.Answer(http.StatusOK, map[string]any{"stats": stats, "timers": orEmpty(page.Timers), "next": page.Next})
}

// timer replies with the open or revoked timers of a subject.
func (h *Handler) timer(c *guard.Call) error {
	subject := c.Query.Get("subject")
	if subject == "" {
		return guard.BadRequest("the subject of the timer is missing")
	}
	found, err := c.Op.Timer(c.R.Context(), subject)
	if errors.Is(err, admin.ErrTimerNotFound) {
		return &guard.Problem{Status: http.StatusNotFound, Detail: "no shard has an open or revoked timer of the subject; list the decided timers to see whether it fired"}
	}
	if err != nil {
		return err
	}
	for i := range found {
		found[i] = newTimer(found[i])
	}
	return c.Answer(http.StatusOK, map[string]any{"timers": found})
}

func newTimer(t admin.Timer) admin.Timer {
	t.Due, t.Decided = pretty.Time(t.Due), pretty.Time(t.Decided)
	return t
}
