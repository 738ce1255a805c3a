package desk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// DeadNames are the query parameters of a filter of dead letters, besides the stream.
var DeadNames = []string{"text", "group", "type", "since", "id"}

// DeadFilterOf reads the filter of an address or a form. The parameter since counts back from now.
func DeadFilterOf(query url.Values, now time.Time) (admin.DeadLetterFilter, error) {
	f := admin.DeadLetterFilter{IDs: query["id"], Text: query.Get("text"), Group: query.Get("group"), Type: query.Get("type")}
	if text := query.Get("since"); text != "" {
		since, err := time.ParseDuration(text)
		if err != nil || since <= 0 {
			return f, guard.BadRequest("since %.80q is not a positive duration; use a duration such as 90s or 24h", text)
		}
		f.Since = now.Add(-since)
	}
	return f, nil
}

// CheckDead returns an error for a stream and a filter that mean nothing.
func CheckDead(name string, f admin.DeadLetterFilter) error {
	if name == "" {
		return guard.BadRequest("the stream is missing")
	}
	if len(f.IDs) > MaxFilterIDs {
		return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("the filter has %d ids; use at most %d", len(f.IDs), MaxFilterIDs)}
	}
	if err := f.Validate(); err != nil {
		return &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	}
	return nil
}

// DeadPage is a page of dead letters.
type DeadPage struct {
	Letters []admin.DeadLetter
	Next    string // where the next page begins; empty on the last page
}

// DeadLetters lists dead letters from a cursor on. A filter that names ids has one page.
func (d *Desk) DeadLetters(ctx context.Context, op *admin.Operator, name string, f admin.DeadLetterFilter, cursor string, limit int) (page DeadPage, err error) {
	if f.After = cursor; len(f.IDs) > 0 {
		f.After, limit = "", MaxFilterIDs
	}
	if err := CheckDead(name, f); err != nil {
		return page, err
	}
	for l, err := range op.DeadLetters(name).List(ctx, f) {
		if errors.Is(err, stream.ErrNotDeadLetter) {
			continue
		}
		if err != nil {
			return page, err
		}
		if len(page.Letters) == limit {
			page.Next = page.Letters[limit-1].ID
			break
		}
		page.Letters = append(page.Letters, l)
	}
	return page, nil
}

// DeadLetter returns the dead letter that an address names by stream and id. If data is set, the reader must have the right to see the
// payload, and the audit records the read.
func (d *Desk) DeadLetter(c *guard.Call, data bool) (admin.DeadLetter, error) {
	name, id := c.Query.Get("stream"), c.Query.Get("id")
	if err := CheckDead(name, admin.DeadLetterFilter{IDs: []string{id}}); err != nil {
		return admin.DeadLetter{}, err
	}
	if data {
		if err := c.Disclose(); err != nil {
			return admin.DeadLetter{}, err
		}
	}
	letters := c.Op.DeadLetters(name)
	l, err := letters.Show(c.R.Context(), id)
	if err == nil && data {
		err = letters.RecordRead(c.R.Context(), "by id", l)
	}
	return l, err
}

// DeadPayload returns the redacted payload of a dead letter.
func (d *Desk) DeadPayload(l admin.DeadLetter) Payload {
	e := outbox.Event{
		Slot: slot.Of(l.Stream), ID: l.ID, State: outbox.Parked, At: l.At, Attempts: int(l.Deliveries), Error: l.Reason, Message: l.Message, Body: l.Data(),
	}
	if l.Message != nil {
		e.Destination = l.Message.Destination()
	}
	return d.Payload(e)
}

// Retry puts the dead letters back that a filter selects now.
func (os *Operations) Retry(op *admin.Operator, name string, f admin.DeadLetterFilter, reason string, opts admin.DeadLetterOptions) (Operation, error) {
	return os.dead("retry", op, name, f, reason, opts, (*admin.DeadLetters).Retry)
}

// DiscardDead discards the dead letters that a filter selects now.
func (os *Operations) DiscardDead(op *admin.Operator, name string, f admin.DeadLetterFilter, reason string, opts admin.DeadLetterOptions) (Operation, error) {
	return os.dead("discard", op, name, f, reason, opts, (*admin.DeadLetters).Discard)
}

// importKind is the kind of an import of dead letters.
const importKind = "import"

// Import adds the lines of an export to the dead letters of a stream.
func (os *Operations) Import(op *admin.Operator, name string, lines io.Reader, reason string) (Operation, error) {
	return os.start(importKind, op, fmt.Sprintf("dead letters of %q: %s", name, reason), func(ctx context.Context, o *job) error {
		r, err := op.DeadLetters(name).Import(ctx, lines, reason, admin.ImportOptions{})
		o.change(func(v *Operation) { v.Matched, v.Done, v.Skipped = r.Read, r.Imported, r.Skipped })
		return err
	})
}

func (os *Operations) dead(
	kind string, op *admin.Operator, name string, f admin.DeadLetterFilter, reason string, opts admin.DeadLetterOptions,
	act func(*admin.DeadLetters, context.Context, admin.DeadLetterFilter, string, admin.DeadLetterOptions) (admin.DeadLetterResult, error),
) (Operation, error) {
	return os.start(kind, op, fmt.Sprintf("dead letters of %q: %s: %s", name, reason, f), func(ctx context.Context, o *job) error {
		see := func(r admin.DeadLetterResult) {
			o.change(func(v *Operation) { v.Dead, v.Matched, v.Done, v.Skipped = &r, r.Matched, r.Done, r.Skipped })
		}
		opts.Progress = see
		result, err := act(op.DeadLetters(name), ctx, f, reason, opts)
		see(result)
		return err
	})
}
