package admin

// console adds the pages for people.
func (h *Handler) console(*routes) {}
