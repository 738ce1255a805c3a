package console

import (
	"net/http"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
)

type inboxPage struct {
	Aggregate string
	ID        luatx.MessageID
	Asked     bool
	Mark      admin.Mark
}

func (u *ui) inbox(c *guard.Call) error {
	page := inboxPage{
		Aggregate: c.Query.Get("aggregate"),
		ID:        luatx.MessageID{Scope: c.Query.Get("scope"), Source: c.Query.Get("source"), ID: c.Query.Get("id")},
	}
	if page.Asked = page.ID.ID != "" || page.Aggregate != ""; page.Asked {
		var err error
		if page.Mark, err = c.Op.Known(c.R.Context(), page.Aggregate, page.ID); err != nil {
			return err
		}
	}
	return u.show(c, "inbox", "Inbox", page)
}

func (u *ui) forget(c *guard.Call) error {
	fields := c.R.PostForm
	if fields.Get("sure") != "yes" || fields.Get("reason") == "" {
		return &guard.Problem{Status: http.StatusBadRequest, Title: "Message not forgotten", Detail: "Go back, enter a reason, and tick the checkbox."}
	}
	id := luatx.MessageID{Scope: fields.Get("scope"), Source: fields.Get("source"), ID: fields.Get("id")}
	if _, err := c.Op.Forget(c.R.Context(), fields.Get("aggregate"), id, fields.Get("reason")); err != nil {
		return err
	}
	c.Redirect(pageLink("", "inbox", "aggregate", fields.Get("aggregate"), "scope", id.Scope, "source", id.Source, "id", id.ID))
	return nil
}
