package httpapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/outbox"
)

// dead replies with a page of dead letters.
func (h *Handler) dead(c *guard.Call) error {
	f, err := desk.DeadFilterOf(c.Query, time.Now())
	if err != nil {
		return err
	}
	limit, err := c.Number("limit", pageLimit, 1, maxPage)
	if err != nil {
		return err
	}
	page, err := h.desk.DeadLetters(c.R.Context(), c.Op, c.Query.Get("stream"), f, c.Query.Get("cursor"), limit)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, map[string]any{"letters": orEmpty(page.Letters), "next": page.Next})
}

// deadLetterJSON is everything that is known of a dead letter.
type deadLetterJSON struct {
	admin.DeadLetter
	payloadJSON
}

// deadLetter replies with one dead letter.
func (h *Handler) deadLetter(c *guard.Call) error {
	data, err := c.Flag("payload")
	if err != nil {
		return err
	}
	l, err := h.desk.DeadLetter(c, data)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, deadLetterJSON{l, newPayload(h.desk.DeadPayload(l), data)})
}

// deadExport replies with dead letters as lines, in the format of admin.DeadLetters.
func (h *Handler) deadExport(c *guard.Call) error {
	name := c.Query.Get("stream")
	f, err := desk.DeadFilterOf(c.Query, time.Now())
	if err == nil {
		err = desk.CheckDead(name, f)
	}
	switch {
	case err != nil:
		return err
	case h.desk.Redact != nil:
		return errRedacted
	}
	if err := c.Disclose(); err != nil {
		return err
	}
	letters := c.Op.DeadLetters(name)
	if err := letters.RecordRead(c.R.Context(), f.String()); err != nil {
		return err
	}
	return h.lines(c, "dead.ndjson", func(out io.Writer) error {
		_, err := letters.Export(c.R.Context(), out, f)
		return err
	})
}

type deadImportRequest struct {
	Stream  string            `json:"stream"`
	Reason  string            `json:"reason"`
	Letters []json.RawMessage `json:"letters"`
	DryRun  bool              `json:"dry_run"`
}

// deadImport adds exported lines to the dead letters; a dry run counts them.
func (h *Handler) deadImport(c *guard.Call, ask deadImportRequest) error {
	err := desk.CheckDead(ask.Stream, admin.DeadLetterFilter{})
	if err == nil && !ask.DryRun {
		err = reasoned(ask.Reason)
	}
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, line := range ask.Letters {
		lines.Write(line)
		lines.WriteByte('\n')
	}
	r, err := c.Op.DeadLetters(ask.Stream).Import(c.R.Context(), &lines, ask.Reason, admin.ImportOptions{DryRun: ask.DryRun})
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, map[string]any{"operation": r.Operation, "read": r.Read, "imported": r.Imported, "skipped": r.Skipped})
}

// deadRequest selects dead letters of a stream, and gives a reason.
type deadRequest struct {
	Stream string          `json:"stream"`
	Filter *deadFilterJSON `json:"filter"`
	// All must be true if the filter is empty.
	All    bool   `json:"all"`
	Reason string `json:"reason"`
	DryRun bool   `json:"dry_run"`
	Limit  int    `json:"limit"`
}

type deadFilterJSON struct {
	IDs   []string `json:"ids"`
	Text  string   `json:"text"`
	Group string   `json:"group"`
	Type  string   `json:"type"`
	Since float64  `json:"since_seconds"`
}

// filter returns the filter of a request.
func (r deadRequest) filter() (f admin.DeadLetterFilter, err error) {
	if j := r.Filter; j != nil {
		if j.Since < 0 || j.Since > maxSeconds {
			return f, guard.BadRequest("since_seconds is %v; use 0 to %v", j.Since, maxSeconds)
		}
		f = admin.DeadLetterFilter{IDs: j.IDs, Text: j.Text, Group: j.Group, Type: j.Type}
		if j.Since > 0 {
			f.Since = time.Now().Add(-seconds(j.Since))
		}
	}
	if err := desk.CheckDead(r.Stream, f); err != nil {
		return f, err
	}
	if f.String() == "all" && !r.All {
		return f, &guard.Problem{Status: http.StatusUnprocessableEntity, Detail: "the request selects no dead letters; set a field of filter, or all to true"}
	}
	return f, reasoned(r.Reason)
}

type deadRetryRequest struct {
	deadRequest

	Canary     int     `json:"canary"`
	CanaryWait float64 `json:"canary_wait_seconds"`
}

// deadRetry puts dead letters back in an operation; a dry run counts them.
func (h *Handler) deadRetry(c *guard.Call, ask deadRetryRequest) error {
	if ask.CanaryWait < 0 || ask.CanaryWait > maxSeconds {
		return guard.BadRequest("canary_wait_seconds is %v; use 0 to %v", ask.CanaryWait, maxSeconds)
	}
	opts := admin.DeadLetterOptions{DryRun: ask.DryRun, Limit: ask.Limit, Canary: ask.Canary, CanaryWait: seconds(ask.CanaryWait)}
	return h.deadAct(c, ask.deadRequest, opts, h.desk.Operations.Retry)
}

// deadDiscard deletes dead letters in an operation; a dry run counts them.
func (h *Handler) deadDiscard(c *guard.Call, ask deadRequest) error {
	return h.deadAct(c, ask, admin.DeadLetterOptions{DryRun: ask.DryRun, Limit: ask.Limit}, h.desk.Operations.DiscardDead)
}

func (h *Handler) deadAct(
	c *guard.Call, ask deadRequest, opts admin.DeadLetterOptions,
	begin func(*admin.Operator, string, admin.DeadLetterFilter, string, admin.DeadLetterOptions) (desk.Operation, error),
) error {
	f, err := ask.filter()
	if err == nil {
		err = opts.Validate()
	}
	if err != nil {
		return err
	}
	if !ask.DryRun {
		o, err := begin(c.Op, ask.Stream, f, ask.Reason, opts)
		return begun(c, o, err)
	}
	r, err := c.Op.DeadLetters(ask.Stream).Retry(c.R.Context(), f, ask.Reason, opts)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, newDeadResult(r))
}

type deadResultJSON struct {
	Operation string                 `json:"operation"` // its id in the audit
	Matched   int                    `json:"matched"`
	Done      int                    `json:"done"`
	Skipped   map[outbox.Outcome]int `json:"skipped"`
	Groups    map[string]int         `json:"groups"`
	Canary    deadCanaryJSON         `json:"canary"`
	Stopped   bool                   `json:"stopped"`
}

type deadCanaryJSON struct {
	Handled   int `json:"handled"`
	DeadAgain int `json:"dead_again"`
	Trying    int `json:"trying"`
}

func newDeadResult(r admin.DeadLetterResult) deadResultJSON {
	if r.Skipped == nil { // it has not begun
		r.Skipped, r.Groups = map[outbox.Outcome]int{}, map[string]int{}
	}
	return deadResultJSON{r.Operation, r.Matched, r.Done, r.Skipped, r.Groups, deadCanaryJSON(r.Canary), r.Stopped}
}
