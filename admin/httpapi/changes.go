package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/outbox"
)

// events replies with a page of the events of a state.
func (h *Handler) events(c *guard.Call) error {
	state, err := desk.StateOf(c.Query.Get("state"))
	if err != nil {
		return err
	}
	return h.list(c, func(ctx context.Context, op *admin.Operator, f outbox.Filter, cursor string, limit int) (desk.Page, error) {
		return h.desk.Events(ctx, op, state, f, cursor, limit)
	})
}

// changeRoutes are the acts on events that are not published yet.
func (h *Handler) changeRoutes() []guard.Route {
	var all []guard.Route
	for _, act := range outbox.Acts() {
		all = append(all, guard.Route{
			Pattern: "POST /api/events/" + string(act), Needs: desk.NeedsOf(act), Scans: true, // as a dry run
			Do: does(func(c *guard.Call, ask changeRequest) error { return h.change(c, act, ask) }),
		})
	}
	return all
}

type changeRequest struct {
	meaning

	State  string    `json:"state"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	DryRun bool      `json:"dry_run"`
	Limit  int       `json:"limit"`
}

// change changes events by name at once, and those of a state and a filter in an operation; a dry run counts them.
func (h *Handler) change(c *guard.Call, act outbox.Act, ask changeRequest) error {
	f, byName, err := h.filter(ask.meaning)
	state, unknown := desk.StateOf(ask.State)
	change := outbox.Change{Act: act, At: ask.At, Reason: ask.Reason}
	if err := cmp.Or(err, unknown, reasoned(ask.Reason)); err != nil {
		return err
	}
	if err := change.Validate(); err != nil {
		return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	}
	switch {
	case ask.Limit < 0 || byName && ask.Limit > 0:
		return guard.BadRequest("limit is %d; use 0 for all, or a positive number with a filter", ask.Limit)
	case byName && (ask.DryRun || ask.State != ""):
		return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: "events by name are changed at once; for a state or a dry run, use filter.events"}
	case byName:
		return by(c, ask.Events, func(ctx context.Context, slot int, ids ...string) (outbox.Answers, error) {
			return c.Op.Outbox().Change(ctx, slot, change, ids...)
		})
	}
	if err := h.desk.Unambiguous(c.R.Context(), c.Op, state, f); err != nil {
		return err
	}
	if !ask.DryRun {
		o, err := h.desk.Operations.Change(c.Op, state, f, change, ask.Limit)
		return begun(c, o, err)
	}
	r, err := c.Op.Outbox().ChangeAll(c.R.Context(), state, f, change, outbox.ChangeOptions{DryRun: true, Limit: ask.Limit})
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, map[string]any{"matched": r.Matched, "destinations": r.Destinations})
}
