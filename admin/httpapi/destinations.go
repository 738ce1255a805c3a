package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/pretty"
)

// paused replies with the paused destinations.
func (h *Handler) paused(c *guard.Call) error {
	all, err := c.Op.Paused(c.R.Context())
	if err != nil {
		return err
	}
	for i := range all {
		all[i].Since, all[i].Until = pretty.Time(all[i].Since), pretty.Time(all[i].Until)
	}
	return c.Answer(http.StatusOK, map[string]any{"paused": orEmpty(all)})
}

type pauseRequest struct {
	Destination string  `json:"destination"`
	Reason      string  `json:"reason"`
	For         float64 `json:"for_seconds"`
}

// pause pauses a destination, and replies with the paused destinations.
func (h *Handler) pause(c *guard.Call, ask pauseRequest) error {
	if ask.For < 0 || ask.For > maxSeconds {
		return guard.BadRequest("for_seconds is %v; use 0 to %v", ask.For, maxSeconds)
	}
	if err := reasoned(ask.Reason); err != nil {
		return err
	}
	var until time.Time
	if ask.For > 0 {
		now, err := h.desk.Time(c.R.Context())
		if err != nil {
			return err
		}
		until = now.Add(seconds(ask.For))
	}
	err := c.Op.Pause(c.R.Context(), ask.Destination, ask.Reason, until)
	if errors.Is(err, admin.ErrTooManyPauses) {
		return &guard.Problem{Status: http.StatusConflict, Detail: err.Error()}
	}
	if err != nil {
		return err
	}
	return h.paused(c)
}

type resumeRequest struct {
	Destination string `json:"destination"`
}

// resume ends a pause.
func (h *Handler) resume(c *guard.Call, ask resumeRequest) error {
	if ask.Destination == "" {
		return guard.BadRequest("the destination is missing")
	}
	resumed, err := c.Op.Resume(c.R.Context(), ask.Destination)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, map[string]any{"resumed": resumed})
}
