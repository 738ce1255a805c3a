package httpapi

import (
	"net/http"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
)

// check replies with the inconsistencies of the shards.
func (h *Handler) check(c *guard.Call) error {
	f, err := desk.FilterOf(c.Query)
	if err == nil {
		err = h.repairs(f.Slots...)
	}
	if err != nil {
		return err
	}
	found := []acts.Finding{}
	more := false
	for f, err := range c.Op.Check(c.R.Context(), f.Slots...) {
		if err != nil {
			return err
		}
		if more = len(found) == desk.MaxFindings; more {
			break
		}
		found = append(found, acts.NewFinding(f))
	}
	return c.Answer(http.StatusOK, map[string]any{"findings": found, "more": more})
}

type fixRequest struct {
	Slots []int `json:"slots"`
}

// fix repairs inconsistencies of the shards.
func (h *Handler) fix(c *guard.Call, ask fixRequest) error {
	if err := h.repairs(ask.Slots...); err != nil {
		return err
	}
	o, err := h.desk.Operations.Fix(c.Op, ask.Slots...)
	return begun(c, o, err)
}

// repairs returns a problem if check and fix are disabled.
func (h *Handler) repairs(slots ...int) error {
	if h.desk.NoRepair {
		return &guard.Problem{Status: http.StatusForbidden, Detail: "check and fix are disabled here; use luatx repair with the retention of the service"}
	}
	return h.desk.Ours(slots...)
}
