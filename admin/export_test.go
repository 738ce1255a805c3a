package admin

// Routes are those of the API: method, path and what they need.
func (h *Handler) Routes() map[string]Access {
	all := map[string]Access{}
	for _, r := range h.routes.all {
		if !r.page {
			all[r.method+" "+r.pattern] = r.needs
		}
	}
	return all
}

// Pages are those of the console, as Routes are.
func (h *Handler) Pages() map[string]Access {
	all := map[string]Access{}
	for _, r := range h.routes.all {
		if r.page {
			all[r.method+" "+r.pattern] = r.needs
		}
	}
	return all
}

// OpenAPI is the description of the API.
func OpenAPI() []byte { return openAPI }
