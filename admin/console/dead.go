package console

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
)

// deadPage lists the dead letters of a stream, or the configured streams.
type deadPage struct {
	Stream                                          string
	Streams                                         []deadStream
	Filter                                          admin.DeadLetterFilter
	Since                                           string
	Filtered, Missing                               bool
	Rows                                            []deadRow
	First, Next, RetryLink, DiscardLink, ExportLink string
}

// deadStream is a stream of the configuration.
type deadStream struct {
	Name, Link, Age, Error string
	Letters                int64
}

// deadRow is a dead letter in the list.
type deadRow struct {
	admin.DeadLetter

	Age, Link string
}

// deadRows is the number of dead letters that a page lists.
const deadRows = 50

func (u *ui) dead(c *guard.Call) error {
	page, ctx := deadPage{Stream: c.Query.Get("stream"), Since: c.Query.Get("since")}, c.R.Context()
	now, err := u.desk.Time(ctx)
	if err != nil {
		return err
	}
	if page.Stream == "" {
		for _, name := range u.desk.Streams {
			page.Streams = append(page.Streams, deadStreamOf(c, name, now))
		}
		return u.show(c, "dead", "Dead letters", page)
	}
	if page.Filter, err = desk.DeadFilterOf(c.Query, now); err != nil {
		return err
	}
	found, err := u.desk.DeadLetters(ctx, c.Op, page.Stream, page.Filter, c.Query.Get("cursor"), deadRows)
	if page.Missing = errors.Is(err, admin.ErrNotFound); err != nil && !page.Missing {
		return err
	}
	page.Filtered = page.Filter.String() != "all"
	for _, l := range found.Letters {
		page.Rows = append(page.Rows, deadRow{l, span(now.Sub(l.At)), letterLink(c.Base(), page.Stream, l.ID)})
	}
	query := deadQuery(c.Query)
	page.RetryLink, page.DiscardLink = linkTo(c.Base(), "preview-retry-dead", query), linkTo(c.Base(), "preview-discard-dead", query)
	page.ExportLink = linkTo(c.Base(), "api/dead/export", query)
	if c.Query.Get("cursor") != "" {
		page.First = linkTo(c.Base(), "dead", query)
	}
	if found.Next != "" {
		next := maps.Clone(query)
		next.Set("cursor", found.Next)
		page.Next = linkTo(c.Base(), "dead", next)
	}
	return u.show(c, "dead", "Dead letters of "+page.Stream, page)
}

// deadStreamOf returns the total of a stream, over all of its partitions.
func deadStreamOf(c *guard.Call, name string, now time.Time) deadStream {
	sum, oldest := deadStream{Name: name, Link: pageLink(c.Base(), "dead", "stream", name)}, time.Time{}
	for s, err := range c.Op.Streams(c.R.Context(), name) {
		if err != nil {
			sum.Error = err.Error()
			break
		}
		sum.Letters += s.DeadLetters
		if at := s.OldestDeadLetter; !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	if !oldest.IsZero() {
		sum.Age = span(now.Sub(oldest))
	}
	return sum
}

// deadQuery returns the stream and the filter of an address or a form as a query.
func deadQuery(form url.Values) url.Values {
	query := url.Values{}
	for _, name := range append(slices.Clone(desk.DeadNames), "stream") {
		for _, value := range form[name] {
			if value != "" {
				query.Add(name, value)
			}
		}
	}
	return query
}

func letterLink(base, stream, id string, more ...string) string {
	return pageLink(base, "letter", append([]string{"stream", stream, "id", id}, more...)...)
}

// letterPage is one dead letter.
type letterPage struct {
	admin.DeadLetter

	Name, Age, Back                                        string
	Attributes                                             []nameValue
	Shown                                                  bool
	Text, Note, ShowLink, HideLink, RetryLink, DiscardLink string
	CLI, Curl                                              string
}

func (u *ui) letter(c *guard.Call) error {
	name, id, shown := c.Query.Get("stream"), c.Query.Get("id"), c.Query.Get("body") == "1"
	l, err := u.desk.DeadLetter(c, shown)
	if err != nil {
		return err
	}
	now, err := u.desk.Time(c.R.Context())
	if err != nil {
		return err
	}
	page := letterPage{
		DeadLetter: l, Name: name, Age: span(now.Sub(l.At)) + " ago", Back: pageLink(c.Base(), "dead", "stream", name), Shown: shown,
		ShowLink: letterLink(c.Base(), name, id, "body", "1"), HideLink: letterLink(c.Base(), name, id),
		RetryLink:   pageLink(c.Base(), "preview-retry-dead", "stream", name, "id", id),
		DiscardLink: pageLink(c.Base(), "preview-discard-dead", "stream", name, "id", id),
	}
	payload := u.desk.DeadPayload(l)
	for _, name := range slices.Sorted(maps.Keys(payload.Attributes)) {
		page.Attributes = append(page.Attributes, nameValue{name, payload.Attributes[name]})
	}
	if shown {
		page.Text, page.Note = readable(payload.Data)
	}
	if c.Who.May >= guard.MayRetry {
		p := deadPlan{act: "retry", stream: name, filter: admin.DeadLetterFilter{IDs: []string{id}}}
		page.CLI, page.Curl = p.commandLine(), p.curl(c)
	}
	return u.show(c, "letter", "Dead letter "+id, page)
}

func (u *ui) previewRetryDead(c *guard.Call) error   { return u.previewDead(c, "retry", "") }
func (u *ui) previewDiscardDead(c *guard.Call) error { return u.previewDead(c, "discard", "") }

// deadPreviewPage shows the effect of an operation on dead letters, and asks for confirmation.
type deadPreviewPage struct {
	Act, Meant, Sentence, Back, Reason, Wait, CLI, Curl string
	Discard                                             bool
	Count, Canary                                       int
	Groups                                              []tallied
	Hidden                                              []nameValue
}

// previewDead shows the effect of an operation as of now. It changes nothing.
func (u *ui) previewDead(c *guard.Call, act, notice string) error {
	fields := form(c)
	shownAt, err := u.desk.Cutoff(c.R.Context())
	if err != nil {
		return err
	}
	p, err := deadPlanOf(act, fields, shownAt)
	if err != nil {
		return err
	}
	found, err := c.Op.DeadLetters(p.stream).Retry(c.R.Context(), p.filter, "", admin.DeadLetterOptions{DryRun: true, Before: shownAt})
	if err != nil {
		return err
	}
	if p.count = found.Matched; p.canary < 0 {
		if p.canary = 0; p.count > usualCanary && act == "retry" {
			p.canary = usualCanary
		}
	}
	groups := map[string]int64{}
	for name, n := range found.Groups {
		groups[name] = int64(n)
	}
	page := deadPreviewPage{
		Act: act, Discard: act == "discard", Count: p.count, Meant: p.meant(), Sentence: p.sentence(), Reason: p.reason, Canary: p.canary, Wait: p.wait.String(),
		Back: pageLink(c.Base(), "dead", "stream", p.stream), Groups: newTally("By group", "Group", groups, 0, nil).Rows, CLI: p.commandLine(), Curl: p.curl(c),
		Hidden: append([]nameValue{{"count", strconv.Itoa(p.count)}, shownAtField(shownAt), {"confirm", p.sentence()}}, hiddenValues(deadQuery(fields))...),
	}
	return u.show(c, "deadpreview", "Preview", page, func(v *view) { v.Notice = notice })
}

func (u *ui) retryDead(c *guard.Call) error {
	return u.actDead(c, "retry", "Nothing has changed yet. Check the preview, enter a reason, and confirm again.", u.desk.Operations.Retry)
}

func (u *ui) discardDead(c *guard.Call) error {
	return u.actDead(c, "discard", "Nothing has changed yet. Check the preview, enter a reason, tick the checkbox, and confirm again.", u.desk.Operations.DiscardDead)
}

// actDead starts the operation that a form confirms.
func (u *ui) actDead(
	c *guard.Call, act, notice string,
	begin func(*admin.Operator, string, admin.DeadLetterFilter, string, admin.DeadLetterOptions) (desk.Operation, error),
) error {
	fields := c.R.PostForm
	shownAt, err := shownAtOf(fields)
	if err != nil {
		return unfit(err)
	}
	p, err := deadPlanOf(act, fields, shownAt)
	if err != nil {
		return err
	}
	if p.count < 1 || shownAt.IsZero() || p.reason == "" || fields.Get("confirm") != p.sentence() || act == "discard" && fields.Get("sure") != "yes" {
		return u.previewDead(c, act, notice)
	}
	o, err := begin(c.Op, p.stream, p.filter, p.reason, admin.DeadLetterOptions{Limit: p.count, Before: shownAt, Canary: p.canary, CanaryWait: p.wait})
	if err != nil {
		return err
	}
	c.Redirect("operations/" + o.ID + "?of=" + strconv.Itoa(p.count))
	return nil
}
