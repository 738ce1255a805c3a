package httpapi

import (
	"strings"

	"github.com/luatx/luatx/admin/console"
	"github.com/luatx/luatx/admin/internal/guard"
)

// MayNothing is the zero value of Access.
const MayNothing = guard.MayNothing

// OpenAPI is the description of the API.
func OpenAPI() []byte { return openAPI }

// Routes returns the rights that the routes of the API need, by method and path.
func (h *Handler) Routes() map[string]Access { return rights(h.routes()) }

// Pages returns the rights that the pages of the console need, by method and path.
func (h *Handler) Pages() (map[string]Access, error) {
	pages, err := console.New(h.desk)
	return rights(pages.Routes), err
}

func rights(routes []guard.Route) map[string]Access {
	all := map[string]Access{}
	for _, r := range routes {
		all[strings.TrimSuffix(r.Pattern, "{$}")] = r.Needs
	}
	return all
}
