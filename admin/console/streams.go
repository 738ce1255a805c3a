package console

import (
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
)

type streamsPage struct {
	Key     string
	Streams []streamView
}

type streamView struct {
	admin.StreamState

	Error string
}

func (u *ui) streams(c *guard.Call) error {
	page := streamsPage{Key: c.Query.Get("key")}
	keys := u.desk.Streams
	if page.Key != "" {
		keys = []string{page.Key}
	}
	for s, err := range c.Op.Streams(c.R.Context(), keys...) {
		v := streamView{StreamState: s}
		if err != nil {
			v.Error = err.Error()
		}
		page.Streams = append(page.Streams, v)
	}
	return u.show(c, "streams", "Streams", page, live)
}
