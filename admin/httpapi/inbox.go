package httpapi

import (
	"cmp"
	"net/http"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/pretty"
)

// inbox replies with the entry of a message in the inbox.
func (h *Handler) inbox(c *guard.Call) error {
	var source *string
	if c.Query.Has("source") {
		text := c.Query.Get("source")
		source = &text
	}
	id, err := h.messageID(c.Query.Get("scope"), c.Query.Get("handler"), source, c.Query.Get("id"))
	if err != nil {
		return err
	}
	m, err := c.Op.Known(c.R.Context(), c.Query.Get("aggregate"), id)
	if err != nil {
		return err
	}
	m.Begun = pretty.Time(m.Begun)
	return c.Answer(http.StatusOK, m)
}

type forgetRequest struct {
	Aggregate string  `json:"aggregate"`
	Scope     string  `json:"scope"`
	Handler   string  `json:"handler"`
	Source    *string `json:"source"`
	ID        string  `json:"id"`
	Reason    string  `json:"reason"`
}

// forget makes the inbox forget a message.
func (h *Handler) forget(c *guard.Call, ask forgetRequest) error {
	id, err := h.messageID(ask.Scope, ask.Handler, ask.Source, ask.ID)
	if err == nil {
		err = reasoned(ask.Reason)
	}
	if err != nil {
		return err
	}
	known, err := c.Op.Forget(c.R.Context(), ask.Aggregate, id, ask.Reason)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, map[string]any{"forgotten": known})
}

// messageID returns the id of a message from the scope that applies it, or from the name of the handler. The source is
// required, but may be empty.
func (h *Handler) messageID(scope, handler string, source *string, id string) (luatx.MessageID, error) {
	if id == "" || source == nil || (scope == "") == (handler == "") {
		return luatx.MessageID{}, guard.BadRequest("the message is not identified; set id, source, and handler or scope")
	}
	return luatx.MessageID{Scope: cmp.Or(scope, parts.Of(h.desk.Op).Transactor.Config().Namespace+"/"+handler), Source: *source, ID: id}, nil
}
