package desk

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/outbox"
)

// Payload is what an event carries.
type Payload struct {
	// Attributes are those of CloudEvents; nil where the body cannot be decoded.
	Attributes map[string]string
	// Data is the event's data, or its whole body where that cannot be decoded; nil where there is none.
	Data []byte
}

// Payload returns what may be shown of what an event carries.
func (d *Desk) Payload(e outbox.Event) Payload {
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
	if d.Redact != nil {
		return d.Redact(e, p)
	}
	return p
}

// Page is a page of parked events.
type Page struct {
	Events []outbox.Event
	Next   string // where the next page begins; empty: there is none
}

// Parked lists parked events from a cursor on. A filter that names ids has one page.
func (d *Desk) Parked(ctx context.Context, op *admin.Operator, f outbox.Filter, cursor string, limit int) (Page, error) {
	return d.page(f, cursor, limit, func(f outbox.Filter) iter.Seq2[outbox.Event, error] { return op.Outbox().Parked(ctx, f) })
}

// Blocked lists the parked events that hold back others, as Parked lists all.
func (d *Desk) Blocked(ctx context.Context, op *admin.Operator, f outbox.Filter, cursor string, limit int) (Page, error) {
	return d.page(f, cursor, limit, func(f outbox.Filter) iter.Seq2[outbox.Event, error] { return op.Outbox().Blocked(ctx, f) })
}

// page reads one page of a list.
func (d *Desk) page(f outbox.Filter, cursor string, limit int, list func(outbox.Filter) iter.Seq2[outbox.Event, error]) (page Page, err error) {
	if err := d.Check(f); err != nil {
		return page, err
	}
	if len(f.IDs) > 0 {
		limit = MaxFilterIDs
	} else if cursor != "" {
		last, err := parseCursor(cursor)
		if err != nil {
			return page, err
		}
		link.Continue(&f, last.Slot, last.At, last.ID)
	}
	for e, err := range list(f) {
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

// cursorOf says where a list goes on behind an event.
func cursorOf(e outbox.Event) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d %s", e.Slot, e.At.UnixMilli(), e.ID))
}

// parseCursor reads what cursorOf has written.
func parseCursor(text string) (e outbox.Event, err error) {
	plain, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.SplitN(string(plain), " ", 3)
	if err != nil || len(parts) != 3 {
		return e, guard.BadRequest("cursor %.80q: use next of the page before", text)
	}
	slot, err := strconv.Atoi(parts[0])
	ms, wrong := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || wrong != nil || slot < 0 {
		return e, guard.BadRequest("cursor %.80q: use next of the page before", text)
	}
	return outbox.Event{Slot: slot, At: time.UnixMilli(ms), ID: parts[2]}, nil
}
