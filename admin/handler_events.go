package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
)

// Payload is what an event carries.
type Payload struct {
	// Attributes are those of CloudEvents; nil where the body cannot be decoded.
	Attributes map[string]string
	// Data is the event's data, or its whole body where that cannot be decoded; nil where there is none.
	Data []byte
}

// payload is what may be shown of what an event carries.
func (h *Handler) payload(e outbox.Event) Payload {
	p := Payload{Data: slices.Clone(e.Body)}
	if e.Message != nil {
		p.Attributes, p.Data = map[string]string{}, slices.Clone(e.Message.Data)
		for name, value := range e.Message.Attributes {
			if at, ok := value.(time.Time); ok {
				value = at.UTC().Format(time.RFC3339Nano)
			}
			p.Attributes[name] = fmt.Sprint(value)
		}
	}
	if h.cfg.Redact != nil {
		return h.cfg.Redact(e, p)
	}
	return p
}

type eventJSON struct {
	Slot        int          `json:"slot"`
	ID          string       `json:"id"`
	State       outbox.State `json:"state"`
	At          time.Time    `json:"at,omitzero"`
	Attempts    int          `json:"attempts"`
	Destination string       `json:"destination"`
	Type        string       `json:"type"`
	Key         string       `json:"key"`
	Class       string       `json:"class"`
	Error       string       `json:"error"`
	Erased      bool         `json:"erased"`
}

func newEvent(e outbox.Event) eventJSON {
	j := eventJSON{e.Slot, e.ID, e.State, e.At, e.Attempts, e.Destination, "", e.Key, e.Class, e.Error, e.Erased}
	j.At = pretty.Time(e.At)
	if e.Message != nil {
		j.Type = e.Message.Type()
	}
	return j
}

// wholeJSON is all that is known of an event.
type wholeJSON struct {
	eventJSON

	History    []failureJSON     `json:"history"`
	Attributes map[string]string `json:"attributes"`
	HasData    bool              `json:"has_data"`
	// Data is there when it was asked for; what is not JSON comes in base64.
	Data   json.RawMessage `json:"data,omitempty"`
	Base64 string          `json:"data_base64,omitempty"`
}

type failureJSON struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Class   string    `json:"class"`
	Text    string    `json:"text"`
}

func (h *Handler) whole(e outbox.Event, data bool) wholeJSON {
	p := h.payload(e)
	j := wholeJSON{eventJSON: newEvent(e), History: []failureJSON{}, Attributes: p.Attributes, HasData: len(p.Data) > 0}
	if j.Attributes == nil {
		j.Attributes = map[string]string{}
	}
	for _, f := range e.History {
		f.At = pretty.Time(f.At)
		j.History = append(j.History, failureJSON(f))
	}
	switch {
	case !data || len(p.Data) == 0:
	case json.Valid(p.Data) && utf8.Valid(p.Data):
		j.Data = p.Data
	default:
		j.Base64 = base64.StdEncoding.EncodeToString(p.Data)
	}
	return j
}

// parkedPage is a page of parked events.
type parkedPage struct {
	Events []outbox.Event
	Next   string // where the next page begins; empty: there is none
}

// parked lists parked events from a cursor on. A filter that names ids has one page.
func (h *Handler) parked(ctx context.Context, op *Operator, f outbox.Filter, cursor string, limit int) (page parkedPage, err error) {
	if err := h.check(f); err != nil {
		return page, err
	}
	list := op.Outbox().Parked(ctx, f)
	if len(f.IDs) > 0 {
		limit = maxFilterIDs
	} else if cursor != "" {
		last, err := parseCursor(cursor)
		if err != nil {
			return page, err
		}
		list = op.Outbox().ParkedBehind(ctx, f, last)
	}
	for e, err := range list {
		if err != nil && e.ID == "" {
			return page, err
		}
		if len(page.Events) == limit {
			page.Next = cursorOf(page.Events[limit-1])
			break
		}
		page.Events = append(page.Events, e)
	}
	return page, nil
}

// pageLimit is how many events a page has unless asked; maxPage is the most.
const (
	pageLimit = 100
	maxPage   = 1000
)

// listParked answers with a page of parked events.
func (h *Handler) listParked(c *call) error {
	if err := c.only(append(slices.Clone(filterNames), "cursor", "limit")...); err != nil {
		return err
	}
	f, err := filterOf(c.query)
	if err != nil {
		return err
	}
	limit, err := c.number("limit", pageLimit, 1, maxPage)
	if err != nil {
		return err
	}
	page, err := h.parked(c.r.Context(), c.op, f, c.query.Get("cursor"), limit)
	if err != nil {
		return err
	}
	events := make([]eventJSON, len(page.Events))
	for i, e := range page.Events {
		events[i] = newEvent(e)
	}
	return c.answer(http.StatusOK, map[string]any{"events": events, "next": page.Next})
}

// export answers with parked events as lines, as outbox.Store writes and reads them.
func (h *Handler) export(c *call) error {
	if err := c.only(filterNames...); err != nil {
		return err
	}
	f, err := filterOf(c.query)
	if err == nil {
		err = h.check(f)
	}
	switch {
	case err != nil:
		return err
	case h.cfg.Redact != nil:
		return &problem{Status: http.StatusForbidden, Detail: "payloads are redacted here, and an export cannot be"}
	}
	if err := c.disclose(); err != nil {
		return err
	}
	if err := c.op.RecordRead(c.r.Context(), f.String()); err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/x-ndjson")
	c.w.Header().Set("Content-Disposition", `attachment; filename="parked.ndjson"`)
	out, restore := c.stream()
	_, err = c.op.Outbox().Export(c.r.Context(), out, f)
	if err == nil {
		err = restore()
	}
	if err == nil || !out.yes {
		return err
	}
	h.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelError, "luatx: export ended early", slog.Any("error", err))
	panic(http.ErrAbortHandler) //nolint:forbidigo // how net/http is told to break off: what a reader has must not look whole
}

// begun knows whether anything was written.
type begun struct {
	http.ResponseWriter

	yes bool
}

// Write implements io.Writer.
func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	return b.ResponseWriter.Write(p)
}

// stream returns a writer for an answer that may be long. The server breaks off once the reader has not taken all of it
// within the handler's Timeout. restore sends the rest, and gives the connection the write deadline of its server again.
func (c *call) stream() (out *begun, restore func() error) {
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(c.h.cfg.Timeout)) // a server without has its own limits
	return &begun{ResponseWriter: c.w}, func() error {
		err := control.Flush()
		if errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
		var deadline time.Time
		if server, ok := c.r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
			deadline = time.Now().Add(server.WriteTimeout)
		}
		_ = control.SetWriteDeadline(deadline)
		return err
	}
}

// show answers with one event.
func (h *Handler) show(c *call) error {
	if err := c.only("slot", "id", "payload"); err != nil {
		return err
	}
	n, err := strconv.Atoi(c.query.Get("slot"))
	if err != nil || c.query.Get("id") == "" {
		return badRequest("say slot and id of the event; api/find looks for an id in all slots")
	}
	data, err := c.flag("payload")
	if err == nil {
		err = h.ours(n)
	}
	if err != nil {
		return err
	}
	if data {
		if err := c.disclose(); err != nil {
			return err
		}
	}
	e, err := c.op.Outbox().Show(c.r.Context(), n, c.query.Get("id"))
	if err != nil && e.ID == "" {
		return err
	}
	if data {
		if err := c.op.RecordRead(c.r.Context(), "by id", e); err != nil {
			return err
		}
	}
	return c.answer(http.StatusOK, h.whole(e, data))
}

// find answers with the events of an id.
func (h *Handler) find(c *call) error {
	if err := c.only("id", "payload"); err != nil {
		return err
	}
	data, err := c.flag("payload")
	if err != nil {
		return err
	}
	id := c.query.Get("id")
	if id == "" {
		return badRequest("say the id of the event")
	}
	if data {
		if err := c.disclose(); err != nil {
			return err
		}
	}
	all := []wholeJSON{}
	for e, err := range c.op.Find(c.r.Context(), id) {
		if err != nil && e.ID == "" {
			return err
		}
		if data {
			if err := c.op.RecordRead(c.r.Context(), "by id", e); err != nil {
				return err
			}
		}
		all = append(all, h.whole(e, data))
	}
	return c.answer(http.StatusOK, map[string]any{"events": all})
}
