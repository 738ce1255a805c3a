package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

// meaning selects events: some by name, or those of a filter.
type meaning struct {
	Events []outbox.EventName `json:"events"`
	Filter *filterJSON        `json:"filter"`
	// All must be true if the filter is empty.
	All bool `json:"all"`
}

type filterJSON struct {
	Slots       []int              `json:"slots"`
	Aggregate   string             `json:"aggregate"`
	IDs         []string           `json:"ids"`
	Events      []outbox.EventName `json:"events"`
	Destination string             `json:"destination"`
	Type        string             `json:"type"`
	Key         string             `json:"key"`
	Class       string             `json:"class"`
	Text        string             `json:"text"`
	OlderThan   float64            `json:"older_than_seconds"`
}

// filter checks which events the request selects, and returns its filter if it has one.
func (h *Handler) filter(m meaning) (f outbox.Filter, byName bool, err error) {
	unfit := func(format string, args ...any) error {
		return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf(format, args...)}
	}
	if len(m.Events) > 0 {
		if m.Filter != nil || m.All || len(m.Events) > desk.MaxFilterIDs {
			return f, true, unfit("events, filter and all exclude each other; set one of them, with at most %d events", desk.MaxFilterIDs)
		}
		for _, e := range m.Events {
			if err := h.desk.Ours(e.Slot); err != nil || e.ID == "" {
				return f, true, cmp.Or(err, unfit("an event has no id"))
			}
		}
		return f, true, nil
	}
	if m.Filter != nil {
		j := m.Filter
		if j.OlderThan < 0 || j.OlderThan > maxSeconds {
			return f, false, unfit("older_than_seconds is %v; use 0 to %v", j.OlderThan, maxSeconds)
		}
		f = outbox.Filter{
			Slots: j.Slots, Aggregate: j.Aggregate, IDs: j.IDs, Events: j.Events, Destination: j.Destination, Type: j.Type, Key: j.Key,
			Class: j.Class, Text: j.Text, OlderThan: seconds(j.OlderThan),
		}
	}
	if f.String() == "all" && !m.All {
		return f, false, unfit("the request selects no events; set events, a field of filter, or all to true")
	}
	return f, false, h.desk.Check(f)
}

// maxSeconds is the longest time in a request, in seconds.
const maxSeconds = 1e9

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// by calls act with the ids of each slot, and replies with the outcome of each event.
func by(c *guard.Call, events []outbox.EventName, act func(ctx context.Context, slot int, ids ...string) (outbox.Answers, error)) error {
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
		answers, err := act(c.R.Context(), n, bySlot[n]...)
		if err != nil {
			return err
		}
		done += answers.Done()
		for _, a := range answers {
			all = append(all, answer{n, a.ID, a.Outcome})
		}
	}
	return c.Answer(http.StatusOK, map[string]any{"done": done, "events": all})
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

// rearm re-arms events by name at once, and those of a filter in an operation. A dry run counts them.
func (h *Handler) rearm(c *guard.Call, ask rearmRequest) error {
	f, byName, err := h.filter(ask.meaning)
	if err != nil {
		return err
	}
	if byName {
		names := ask.Events
		if ask.meaning = (meaning{}); ask.plain() {
			return by(c, names, c.Op.Outbox().Rearm)
		}
		return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: "events by name are re-armed at once, without options; for options, use filter.events"}
	}
	if ask.CanaryWait < 0 || ask.CanaryWait > maxSeconds {
		return guard.BadRequest("canary_wait_seconds is %v; use 0 to %v", ask.CanaryWait, maxSeconds)
	}
	opts := outbox.RearmOptions{
		DryRun: ask.DryRun, Limit: ask.Limit, Canary: ask.Canary, CanaryWait: seconds(ask.CanaryWait), Rate: ask.Rate,
		MaxParkedAgain: ask.MaxParkedAgain, Destination: ask.Destination,
	}
	if err := cmp.Or(opts.Validate(), c.Op.Outbox().CheckDestination(opts.Destination)); err != nil {
		return err
	}
	if err := h.desk.Unambiguous(c.R.Context(), c.Op, outbox.Parked, f); err != nil {
		return err
	}
	if !ask.DryRun {
		o, err := h.desk.Operations.Rearm(c.Op, f, opts)
		return begun(c, o, err)
	}
	result, err := c.Op.Outbox().RearmAll(c.R.Context(), f, opts)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, newRearm(result))
}

// plain reports whether a request has no options.
func (r rearmRequest) plain() bool {
	return !r.DryRun && r.Limit == 0 && r.Canary == 0 && r.CanaryWait == 0 && r.Rate == 0 && r.MaxParkedAgain == 0 && r.Destination == ""
}

// reasoned returns a problem for an operation without a reason.
func reasoned(reason string) error {
	if reason == "" || len(reason) > parts.MaxReason {
		return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("the reason is empty or too long; set a reason of 1 to %d bytes for the audit", parts.MaxReason)}
	}
	return nil
}

type discardRequest struct {
	meaning

	DryRun bool   `json:"dry_run"`
	Reason string `json:"reason"`
	Limit  int    `json:"limit"`
}

// discard removes events permanently: by name at once, those of a filter in an operation. A dry run counts them.
func (h *Handler) discard(c *guard.Call, ask discardRequest) error {
	f, byName, err := h.filter(ask.meaning)
	if err == nil {
		err = reasoned(ask.Reason)
	}
	switch {
	case err != nil:
		return err
	case ask.Limit < 0 || byName && ask.Limit > 0:
		return guard.BadRequest("limit is %d; use 0 for all, or a positive number with a filter", ask.Limit)
	case byName && ask.DryRun:
		return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: "events by name are discarded at once; for a dry run, use filter.events"}
	case byName:
		return by(c, ask.Events, func(ctx context.Context, slot int, ids ...string) (outbox.Answers, error) {
			return c.Op.Outbox().Discard(ctx, slot, ask.Reason, ids...)
		})
	}
	if err := h.desk.Unambiguous(c.R.Context(), c.Op, outbox.Parked, f); err != nil {
		return err
	}
	if ask.DryRun {
		found, err := counted(c, f, ask.Limit)
		if err != nil {
			return err
		}
		return c.Answer(http.StatusOK, newRearm(found))
	}
	o, err := h.desk.Operations.Discard(c.Op, acts.Discarding{Filter: f, Reason: ask.Reason, Limit: ask.Limit})
	return begun(c, o, err)
}

// counted counts the events that a discard would remove, like a dry run of rearm.
func counted(c *guard.Call, f outbox.Filter, limit int) (outbox.RearmResult, error) {
	found := outbox.RearmResult{Classes: map[string]int{}}
	err := acts.Discarding{Filter: f, Limit: limit, DryRun: true, Step: func(events []outbox.Event, _ outbox.Answers) {
		found.Matched += len(events)
		for _, e := range events {
			found.Classes[e.Class]++
		}
	}}.Run(c.R.Context(), c.Op.Outbox())
	return found, err
}

type eraseRequest struct {
	Events []outbox.EventName `json:"events"`
	Reason string             `json:"reason"`
}

// erase erases the bodies of events.
func (h *Handler) erase(c *guard.Call, ask eraseRequest) error {
	_, _, err := h.filter(meaning{Events: ask.Events})
	if err == nil {
		err = reasoned(ask.Reason)
	}
	if err != nil {
		return err
	}
	return by(c, ask.Events, func(ctx context.Context, slot int, ids ...string) (outbox.Answers, error) {
		return c.Op.Outbox().Erase(ctx, slot, ask.Reason, ids...)
	})
}
