package httpapi

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
)

// doctor replies with the findings about the servers.
func (h *Handler) doctor(c *guard.Call) error {
	role := admin.Role(cmp.Or(c.Query.Get("role"), string(admin.RoleApplication)))
	if !slices.Contains(admin.Roles(), role) {
		return guard.BadRequest("role %.80q does not exist; use one of %v", role, admin.Roles())
	}
	found, err := c.Op.Examine(c.R.Context(), admin.Examination{Role: role})
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, map[string]any{"findings": orEmpty(found)})
}
