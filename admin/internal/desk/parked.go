package desk

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/outbox"
)

// Payload is the content of an event.
type Payload struct {
	// Attributes are those of CloudEvents; nil where the body cannot be decoded.
	Attributes map[string]string
	// Data is the event's data, or its whole body if that cannot be decoded. It is nil if there is none.
	Data []byte
}

// Payload returns the redacted payload of an event.
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
	// Next is where the next page begins. It is empty on the last page. A page with fewer events than requested may have one.
	Next string
}

// Parked lists parked events from a cursor on. A filter that names ids has one page.
func (d *Desk) Parked(ctx context.Context, op *admin.Operator, f outbox.Filter, cursor string, limit int) (Page, error) {
	return d.page(f, cursor, limit, byTime{}, func(f outbox.Filter) iter.Seq2[outbox.Event, error] { return op.Outbox().Parked(ctx, f) })
}

// Blocked lists the parked events that hold back others, as Parked lists all.
func (d *Desk) Blocked(ctx context.Context, op *admin.Operator, f outbox.Filter, cursor string, limit int) (Page, error) {
	return d.page(f, cursor, limit, byTime{}, func(f outbox.Filter) iter.Seq2[outbox.Event, error] { return op.Outbox().Blocked(ctx, f) })
}

// Events lists the events of a state, as Parked lists parked ones.
func (d *Desk) Events(ctx context.Context, op *admin.Operator, state outbox.State, f outbox.Filter, cursor string, limit int) (Page, error) {
	return d.page(f, cursor, limit, byPlace{}, func(f outbox.Filter) iter.Seq2[outbox.Event, error] {
		return op.Outbox().List(ctx, state, outbox.ListOptions{Filter: f})
	})
}

// pageBound is how many events without bodies, or four times how many with bodies, one page reads to find those of a filter.
const pageBound = 15_000

// page reads one page of a list.
func (d *Desk) page(f outbox.Filter, cursor string, limit int, how cursors, list func(outbox.Filter) iter.Seq2[outbox.Event, error]) (page Page, err error) {
	if len(f.IDs) > 0 {
		limit = MaxFilterIDs
	} else if cursor != "" {
		plain, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || !how.resume(&f, string(plain)) {
			return page, guard.BadRequest("cursor %.80q is invalid; use the next of the previous page", cursor)
		}
	}
	link.Bound(&f, pageBound)
	for e, err := range list(f) {
		if pause, ok := errors.AsType[*link.PauseError](err); ok {
			page.Next = base64.RawURLEncoding.EncodeToString([]byte(how.at(pause.Slot, pause.Place)))
			break
		}
		if err != nil && e.ID == "" {
			return page, err
		}
		if len(page.Events) == limit {
			page.Next = base64.RawURLEncoding.EncodeToString([]byte(how.behind(page.Events[limit-1])))
			break
		}
		page.Events = append(page.Events, e)
	}
	return page, nil
}

// cursors encode the place at which a list continues.
type cursors interface {
	// behind returns the place after an event.
	behind(e outbox.Event) string
	// at returns a place of a slot.
	at(slot int, place shard.Place) string
	// resume makes the list of a filter continue at such a place. It returns false if the text is not a place.
	resume(f *outbox.Filter, text string) bool
}

// byTime are the cursors of lists by the time of events.
type byTime struct{}

func (byTime) behind(e outbox.Event) string {
	return fmt.Sprintf("%d %d %s", e.Slot, e.At.UnixMilli(), e.ID)
}

func (byTime) at(slot int, place shard.Place) string {
	ms, _ := strconv.ParseFloat(cmp.Or(place.Score, "-1"), 64) // the score of a sorted set
	return fmt.Sprintf("%d %d %s", slot, int64(ms), place.Member)
}

func (byTime) resume(f *outbox.Filter, text string) bool {
	slot, at, id, ok := threeParts(text)
	ms, err := strconv.ParseInt(at, 10, 64)
	link.Continue(f, slot, time.UnixMilli(ms), id)
	return ok && err == nil
}

// byPlace are the cursors of lists by state.
type byPlace struct{}

func (byPlace) behind(e outbox.Event) string {
	slot, place, _ := link.PlaceOf(&e)
	return fmt.Sprintf("%d %s %s", slot, place.Score, place.Member)
}

func (byPlace) at(slot int, place shard.Place) string {
	return fmt.Sprintf("%d %s %s", slot, cmp.Or(place.Score, "-1e300"), place.Member)
}

func (byPlace) resume(f *outbox.Filter, text string) bool {
	slot, score, member, ok := threeParts(text)
	_, err := strconv.ParseFloat(score, 64)
	link.ContinueAt(f, slot, shard.Place{Score: score, Member: member})
	return ok && err == nil
}

// threeParts splits the text of a cursor.
func threeParts(text string) (slot int, second, third string, ok bool) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return 0, "", "", false
	}
	slot, err := strconv.Atoi(parts[0])
	return slot, parts[1], parts[2], err == nil && slot >= 0
}
