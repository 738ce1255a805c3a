package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

// wholeJSON is all that is known of an event.
type wholeJSON struct {
	acts.Event
	payloadJSON

	History []acts.Failure `json:"history"`
}

func (h *Handler) whole(e outbox.Event, data bool) wholeJSON {
	return wholeJSON{Event: acts.NewEvent(e), History: acts.NewHistory(e), payloadJSON: newPayload(h.desk.Payload(e), data)}
}

// payloadJSON is the payload of an event or a dead letter.
type payloadJSON struct {
	Attributes map[string]string `json:"attributes"`
	HasData    bool              `json:"has_data"`
	// Data is set if the request asks for it. Data that is not JSON is encoded in base64.
	Data   json.RawMessage `json:"data,omitempty"`
	Base64 string          `json:"data_base64,omitempty"`
	// Holder is the id of the relay that holds the lease, if known.
	Holder string `json:"holder,omitempty"`
}

func newPayload(p desk.Payload, data bool) payloadJSON {
	j := payloadJSON{Attributes: p.Attributes, HasData: len(p.Data) > 0}
	if j.Attributes == nil {
		j.Attributes = map[string]string{}
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

// pageLimit is the default number of events on a page, and maxPage the maximum.
const (
	pageLimit = 100
	maxPage   = 1000
)

// parked replies with a page of parked events.
func (h *Handler) parked(c *guard.Call) error { return h.list(c, h.desk.Parked) }

// blocked replies with a page of the parked events that hold back others.
func (h *Handler) blocked(c *guard.Call) error { return h.list(c, h.desk.Blocked) }

// list replies with a page of events.
func (h *Handler) list(c *guard.Call, pageOf func(context.Context, *admin.Operator, outbox.Filter, string, int) (desk.Page, error)) error {
	f, err := h.desk.EventFilter(c.Query)
	if err != nil {
		return err
	}
	limit, err := c.Number("limit", pageLimit, 1, maxPage)
	if err != nil {
		return err
	}
	page, err := pageOf(c.R.Context(), c.Op, f, c.Query.Get("cursor"), limit)
	if err != nil {
		return err
	}
	events := make([]acts.Event, len(page.Events))
	for i, e := range page.Events {
		events[i] = acts.NewEvent(e)
	}
	return c.Answer(http.StatusOK, map[string]any{"events": events, "next": page.Next})
}

// errRedacted is the problem of an export with redacted payloads.
var errRedacted = &guard.Problem{Status: http.StatusForbidden, Detail: "this handler redacts payloads, and an export cannot be redacted"}

// export replies with parked events as lines, in the format of outbox.Store.
func (h *Handler) export(c *guard.Call) error {
	f, err := h.desk.EventFilter(c.Query)
	switch {
	case err != nil:
		return err
	case h.desk.Redact != nil:
		return errRedacted
	}
	if err := c.Disclose(); err != nil {
		return err
	}
	if err := c.Op.RecordRead(c.R.Context(), f.String()); err != nil {
		return err
	}
	return h.lines(c, "parked.ndjson", func(out io.Writer) error {
		_, err := c.Op.Outbox().Export(c.R.Context(), out, f)
		return err
	})
}

// lines replies with lines of JSON under the name of a file.
func (h *Handler) lines(c *guard.Call, name string, write func(io.Writer) error) error {
	c.W.Header().Set("Content-Type", "application/x-ndjson")
	c.W.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	out, restore := h.stream(c)
	err := write(out)
	if err == nil {
		err = restore()
	}
	if err == nil || !out.yes {
		return err
	}
	h.desk.Logger.LogAttrs(c.R.Context(), slog.LevelError, "luatx: export ended early", slog.Any("error", err))
	panic(http.ErrAbortHandler) //nolint:forbidigo // aborts the reply, because a partial export must not look complete
}

// tracked knows whether anything was written.
type tracked struct {
	http.ResponseWriter

	yes bool
}

// Write implements io.Writer.
func (b *tracked) Write(p []byte) (int, error) {
	b.yes = true
	return b.ResponseWriter.Write(p)
}

// stream returns a writer for an answer that may be long. The server breaks off once the reader has not taken all of it
// within the handler's Timeout. restore sends the rest, and gives the connection the write deadline of its server again.
func (h *Handler) stream(c *guard.Call) (out *tracked, restore func() error) {
	control := http.NewResponseController(c.W)
	_ = control.SetWriteDeadline(time.Now().Add(h.desk.Timeout)) // a server without deadlines has its own limits
	return &tracked{ResponseWriter: c.W}, func() error {
		err := control.Flush()
		if errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
		var deadline time.Time
		if server, ok := c.R.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
			deadline = time.Now().Add(server.WriteTimeout)
		}
		_ = control.SetWriteDeadline(deadline)
		return err
	}
}

// event replies with one event.
func (h *Handler) event(c *guard.Call) error {
	n, err := strconv.Atoi(c.Query.Get("slot"))
	if err != nil || c.Query.Get("id") == "" {
		return guard.BadRequest("the slot or the id of the event is missing; api/find searches all slots for an id")
	}
	data, err := c.Flag("payload")
	if err == nil {
		err = h.desk.Ours(n)
	}
	if err != nil {
		return err
	}
	if data {
		if err := c.Disclose(); err != nil {
			return err
		}
	}
	e, err := c.Op.Outbox().Show(c.R.Context(), n, c.Query.Get("id"))
	if err != nil && e.ID == "" {
		return err
	}
	if data {
		if err := c.Op.RecordRead(c.R.Context(), "by id", e); err != nil {
			return err
		}
	}
	whole := h.whole(e, data)
	holder, _, err := c.Op.Holder(c.R.Context(), e)
	if err != nil {
		return err
	}
	whole.Holder = holder.ID
	return c.Answer(http.StatusOK, whole)
}

// find replies with the events of an id.
func (h *Handler) find(c *guard.Call) error {
	data, err := c.Flag("payload")
	if err != nil {
		return err
	}
	id := c.Query.Get("id")
	if id == "" {
		return guard.BadRequest("the id of the event is missing")
	}
	if data {
		if err := c.Disclose(); err != nil {
			return err
		}
	}
	all := []wholeJSON{}
	for e, err := range c.Op.Find(c.R.Context(), id) {
		if err != nil && e.ID == "" {
			return err
		}
		if data {
			if err := c.Op.RecordRead(c.R.Context(), "by id", e); err != nil {
				return err
			}
		}
		all = append(all, h.whole(e, data))
	}
	return c.Answer(http.StatusOK, map[string]any{"events": all})
}
