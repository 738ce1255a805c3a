package admin

import (
	"errors"
	"net/http"
	"time"

	"github.com/luatx/luatx/internal/pretty"
)

// destinations answers with those that are paused.
func (h *Handler) destinations(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	return h.paused(c)
}

func (h *Handler) paused(c *call) error {
	all, err := c.op.Paused(c.r.Context())
	if err != nil {
		return err
	}
	for i := range all {
		all[i].Since, all[i].Until = pretty.Time(all[i].Since), pretty.Time(all[i].Until)
	}
	return c.answer(http.StatusOK, map[string]any{"paused": orEmpty(all)})
}

// pause keeps relays from publishing to a destination, and answers with those that are paused.
func (h *Handler) pause(c *call) error {
	var ask struct {
		Destination string  `json:"destination"`
		Reason      string  `json:"reason"`
		For         float64 `json:"for_seconds"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if ask.For < 0 || ask.For > maxSeconds {
		return badRequest("for_seconds is %v: use 0 to %v", ask.For, maxSeconds)
	}
	if err := reasoned(ask.Reason); err != nil {
		return err
	}
	var until time.Time
	if ask.For > 0 {
		now, err := h.op.cfg.Client.Time(c.r.Context()).Result()
		if err != nil {
			return err
		}
		until = now.Add(seconds(ask.For))
	}
	err := c.op.Pause(c.r.Context(), ask.Destination, ask.Reason, until)
	if errors.Is(err, ErrTooManyPauses) {
		return &problem{Status: http.StatusConflict, Detail: err.Error()}
	}
	if err != nil {
		return err
	}
	return h.paused(c)
}

// resume ends a pause.
func (h *Handler) resume(c *call) error {
	var ask struct {
		Destination string `json:"destination"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if ask.Destination == "" {
		return badRequest("say the destination")
	}
	resumed, err := c.op.Resume(c.r.Context(), ask.Destination)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, map[string]any{"resumed": resumed})
}
