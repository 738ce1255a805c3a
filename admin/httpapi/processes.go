package httpapi

import (
	"net/http"
	"slices"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/pretty"
)

// processes replies with the running and the crashed processes.
func (h *Handler) processes(c *guard.Call) error {
	for _, kind := range c.Query["kind"] {
		if !slices.Contains(admin.ProcessKinds(), kind) {
			return guard.BadRequest("kind %.80q does not exist; use one of %v", kind, admin.ProcessKinds())
		}
	}
	all := []admin.Process{}
	for p, err := range c.Op.Processes(c.R.Context(), c.Query["kind"]...) {
		if err != nil {
			return err
		}
		p.Since, p.Seen = pretty.Time(p.Since), pretty.Time(p.Seen)
		all = append(all, p)
	}
	return c.Answer(http.StatusOK, map[string]any{"processes": all})
}
