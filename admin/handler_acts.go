package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/outbox"
)

// meaning says which events are meant: some by name, or those of a filter.
type meaning struct {
	Events []eventName `json:"events"`
	Filter *filterJSON `json:"filter"`
	// All must be true where nothing of the filter is set.
	All bool `json:"all"`
}

type eventName struct {
	Slot int    `json:"slot"`
	ID   string `json:"id"`
}

type filterJSON struct {
	Slots       []int    `json:"slots"`
	Aggregate   string   `json:"aggregate"`
	IDs         []string `json:"ids"`
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Key         string   `json:"key"`
	Class       string   `json:"class"`
	Text        string   `json:"text"`
	OlderThan   float64  `json:"older_than_seconds"`
}

// filter checks what is meant, and returns the filter where there is one.
func (h *Handler) filter(m meaning) (f outbox.Filter, byName bool, err error) {
	unfit := func(format string, args ...any) error {
		return &problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf(format, args...)}
	}
	if len(m.Events) > 0 {
		if m.Filter != nil || m.All || len(m.Events) > maxFilterIDs {
			return f, true, unfit("name up to %d events, or say a filter, or all", maxFilterIDs)
		}
		for _, e := range m.Events {
			if err := h.ours(e.Slot); err != nil || e.ID == "" {
				return f, true, cmp.Or(err, unfit("an event has no id"))
			}
		}
		return f, true, nil
	}
	if m.Filter != nil {
		j := m.Filter
		if j.OlderThan < 0 || j.OlderThan > maxSeconds {
			return f, false, unfit("older_than_seconds is %v: use 0 to %v", j.OlderThan, maxSeconds)
		}
		f = outbox.Filter{
			Slots: j.Slots, Aggregate: j.Aggregate, IDs: j.IDs, Destination: j.Destination, Type: j.Type, Key: j.Key, Class: j.Class,
			Text: j.Text, OlderThan: seconds(j.OlderThan),
		}
	}
	if f.String() == "all" && !m.All {
		return f, false, unfit("name events, or set something of the filter, or say all: true")
	}
	return f, false, h.check(f)
}

// maxSeconds is the longest time that a request may speak of.
const maxSeconds = 1e9

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// by calls act with the ids of each slot, and answers with what became of each event.
func (c *call) by(events []eventName, act func(ctx context.Context, slot int, ids ...string) (outbox.Answers, error)) error {
	bySlot := map[int][]string{}
	for _, e := range events {
		bySlot[e.Slot] = append(bySlot[e.Slot], e.ID)
	}
	type answer struct {
		Slot    int            `json:"slot"`
		ID      string         `json:"id"`
		Outcome outbox.Outcome `json:"outcome"`
	}
	all, done := []answer{}, 0
	for _, n := range slices.Sorted(maps.Keys(bySlot)) {
		answers, err := act(c.r.Context(), n, bySlot[n]...)
		if err != nil {
			return err
		}
		done += answers.Done()
		for _, a := range answers {
			all = append(all, answer{n, a.ID, a.Outcome})
		}
	}
	return c.answer(http.StatusOK, map[string]any{"done": done, "events": all})
}

// begun answers with an operation that goes on.
func (c *call) begun(o *operation, err error) error {
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", c.base()+"api/operations/"+o.id)
	return c.answer(http.StatusAccepted, o.see())
}

type rearmRequest struct {
	meaning

	DryRun         bool    `json:"dry_run"`
	Limit          int     `json:"limit"`
	Canary         int     `json:"canary"`
	CanaryWait     float64 `json:"canary_wait_seconds"`
	Rate           float64 `json:"rate"`
	MaxParkedAgain int     `json:"max_parked_again"`
	Destination    string  `json:"destination"`
}

// rearm re-arms events by name at once, and those of a filter in an operation; a dry run counts them.
func (h *Handler) rearm(c *call) error {
	var ask rearmRequest
	if err := c.decode(&ask); err != nil {
		return err
	}
	f, byName, err := h.filter(ask.meaning)
	if err != nil {
		return err
	}
	if byName {
		names := ask.Events
		if ask.meaning = (meaning{}); ask.plain() {
			return c.by(names, c.op.Outbox().Rearm)
		}
		return &problem{Status: http.StatusUnprocessableEntity, Detail: "events by name are re-armed at once: for more say a filter with ids and slots"}
	}
	if ask.CanaryWait < 0 || ask.CanaryWait > maxSeconds {
		return badRequest("canary_wait_seconds is %v: use 0 to %v", ask.CanaryWait, maxSeconds)
	}
	opts := outbox.RearmOptions{
		DryRun: ask.DryRun, Limit: ask.Limit, Canary: ask.Canary, CanaryWait: seconds(ask.CanaryWait), Rate: ask.Rate,
		MaxParkedAgain: ask.MaxParkedAgain, Destination: ask.Destination,
	}
	if err := cmp.Or(opts.Validate(), c.op.Outbox().CheckDestination(opts.Destination)); err != nil {
		return err
	}
	if !ask.DryRun {
		return c.begun(h.operations.rearm(c.op, f, opts))
	}
	result, err := c.op.Outbox().RearmAll(c.r.Context(), f, opts)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, newRearm(result))
}

// plain reports whether nothing is said of how to re-arm.
func (r rearmRequest) plain() bool {
	return !r.DryRun && r.Limit == 0 && r.Canary == 0 && r.CanaryWait == 0 && r.Rate == 0 && r.MaxParkedAgain == 0 && r.Destination == ""
}

// reasoned refuses an act without a reason.
func reasoned(reason string) error {
	if reason == "" || len(reason) > maxReason {
		return &problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("say a reason of at most %d bytes: it is recorded", maxReason)}
	}
	return nil
}

// discard removes events for good: by name at once, those of a filter in an operation.
func (h *Handler) discard(c *call) error {
	var ask struct {
		meaning

		Reason string `json:"reason"`
		Limit  int    `json:"limit"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	f, byName, err := h.filter(ask.meaning)
	if err == nil {
		err = reasoned(ask.Reason)
	}
	switch {
	case err != nil:
		return err
	case ask.Limit < 0 || byName && ask.Limit > 0:
		return badRequest("limit is %d: use 0 for all, or more, with a filter", ask.Limit)
	case byName:
		return c.by(ask.Events, func(ctx context.Context, slot int, ids ...string) (outbox.Answers, error) {
			return c.op.Outbox().Discard(ctx, slot, ask.Reason, ids...)
		})
	}
	return c.begun(h.operations.discard(c.op, f, ask.Reason, ask.Limit))
}

// erase erases the bodies of events.
func (h *Handler) erase(c *call) error {
	var ask struct {
		Events []eventName `json:"events"`
		Reason string      `json:"reason"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	_, _, err := h.filter(meaning{Events: ask.Events})
	if err == nil {
		err = reasoned(ask.Reason)
	}
	if err != nil {
		return err
	}
	return c.by(ask.Events, func(ctx context.Context, slot int, ids ...string) (outbox.Answers, error) {
		return c.op.Outbox().Erase(ctx, slot, ask.Reason, ids...)
	})
}

// forget makes the inbox forget a message.
func (h *Handler) forget(c *call) error {
	var ask struct {
		Aggregate string `json:"aggregate"`
		Scope     string `json:"scope"`
		Handler   string `json:"handler"`
		Source    string `json:"source"`
		ID        string `json:"id"`
		Reason    string `json:"reason"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	id, err := h.messageID(ask.Scope, ask.Handler, ask.Source, ask.ID)
	if err == nil {
		err = reasoned(ask.Reason)
	}
	if err != nil {
		return err
	}
	known, err := c.op.Forget(c.r.Context(), ask.Aggregate, id, ask.Reason)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, map[string]any{"forgotten": known})
}

// messageID names a message by the scope that applies it, or by the name of the handler.
func (h *Handler) messageID(scope, handler, source, id string) (luatx.MessageID, error) {
	if id == "" || (scope == "") == (handler == "") {
		return luatx.MessageID{}, badRequest("say id, and handler or scope")
	}
	return luatx.MessageID{Scope: cmp.Or(scope, h.op.transactor.Config().Namespace+"/"+handler), Source: source, ID: id}, nil
}

// fix settles what disagrees in the shards.
func (h *Handler) fix(c *call) error {
	var ask struct {
		Slots []int `json:"slots"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := h.repairs(ask.Slots...); err != nil {
		return err
	}
	return c.begun(h.operations.fix(c.op, ask.Slots...))
}

// repairs refuses where check and fix are not offered.
func (h *Handler) repairs(slots ...int) error {
	if h.cfg.NoRepair {
		return &problem{Status: http.StatusForbidden, Detail: "check and fix are not offered here: use luatx repair with the service's retention"}
	}
	return h.ours(slots...)
}

// stop ends an operation early.
func (h *Handler) stop(c *call) error {
	var ask struct{}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := c.stop(c.id); err != nil {
		return err
	}
	return h.operation(c)
}

// stop ends an operation early, if the caller may do what it does.
func (c *call) stop(id string) error {
	o, ok := c.h.operations.get(id)
	switch {
	case !ok:
		return &problem{Status: http.StatusNotFound, Detail: "no such operation"}
	case o.Kind == "discard" && c.who.May < MayPurge:
		return &problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("%s may %s, and stopping a discard needs the right to purge", c.who.Name, c.who.May)}
	}
	c.h.operations.stop(id)
	return nil
}
