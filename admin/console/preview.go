package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
)

// previewPage shows the effect of an operation, and asks for confirmation.
type previewPage struct {
	Act                               string
	Discard, Elsewhere                bool // Elsewhere reports that another destination is allowed
	Count, Erased                     int
	Meant, Sentence, Back             string
	Classes, Destinations             tally
	Hidden                            []nameValue
	Canary, Again                     int
	Wait, Rate, To, Reason, CLI, Curl string
}

type nameValue struct{ Name, Value string }

// eventCounts holds the counts of a filter's events.
type eventCounts struct {
	events, erased        int
	classes, destinations map[string]int64
}

// countBodies is the maximum number of parked events that are also counted by destination, which reads their bodies.
const countBodies = 20_000

// count counts the events of a plan. It changes nothing.
func (u *ui) count(ctx context.Context, c *guard.Call, p plan) (h eventCounts, err error) {
	h.classes = map[string]int64{}
	now, err := u.desk.Samples.Now(ctx)
	if err != nil {
		return h, err
	}
	if now.Stats.Parked.Total > countBodies {
		dry, err := c.Op.Outbox().RearmAll(ctx, p.filter, outbox.RearmOptions{DryRun: true, Before: p.shownAt})
		for class, n := range dry.Classes {
			h.classes[class] = int64(n)
		}
		h.erased = dry.Skipped[outbox.NoBody]
		h.events = dry.Matched - h.erased
		return h, err
	}
	h.destinations = map[string]int64{}
	err = acts.Discarding{Filter: p.filter, Before: p.shownAt, DryRun: true, Step: func(events []outbox.Event, _ outbox.Answers) {
		for _, e := range events {
			if e.Erased {
				h.erased++
				continue
			}
			h.events++
			h.classes[e.Class]++
			h.destinations[e.Destination]++
		}
	}}.Run(ctx, c.Op.Outbox())
	return h, err
}

// plan is an operation as given by a form.
type plan struct {
	act    string // rearm or discard
	filter outbox.Filter
	count  int // as in the preview
	// shownAt is the time of the preview. The operation leaves out events that were parked later.
	shownAt time.Time
	opts    outbox.RearmOptions
	reason  string
}

// Defaults of a re-arm: cautious, but fast enough for thousands of events.
const (
	usualCanary = 10
	usualRate   = 500
	usualAgain  = 10
	usualWait   = 30 * time.Second
)

// planOf reads a plan. Missing fields have their defaults.
func planOf(act string, form url.Values) (p plan, err error) {
	p = plan{act: act, reason: form.Get("reason"), opts: outbox.RearmOptions{Canary: -1, Rate: usualRate, MaxParkedAgain: usualAgain, CanaryWait: usualWait}}
	if p.filter, err = desk.FilterOf(form); err != nil {
		return p, unfit(err)
	}
	whole := func(name string, into *int) {
		if text := form.Get(name); text != "" && err == nil {
			if *into, err = strconv.Atoi(text); err != nil {
				err = fmt.Errorf("%s is %.40q; use a whole number", name, text)
			}
		}
	}
	if err == nil {
		p.shownAt, err = shownAtOf(form)
	}
	whole("count", &p.count)
	whole("canary", &p.opts.Canary)
	whole("max_parked_again", &p.opts.MaxParkedAgain)
	if text := form.Get("rate"); form.Has("rate") && err == nil {
		if p.opts.Rate, err = strconv.ParseFloat(cmp.Or(text, "0"), 64); err != nil || !(p.opts.Rate >= 0 && p.opts.Rate < 1e9) {
			err = fmt.Errorf("rate is %.40q; use a number of events per second, or leave it empty for no limit", text)
		}
	}
	if text := form.Get("canary_wait"); text != "" && err == nil {
		if p.opts.CanaryWait, err = time.ParseDuration(text); err != nil {
			err = fmt.Errorf("canary_wait is %.40q; use a duration such as 30s or 5m", text)
		}
	}
	p.opts.Destination = form.Get("to")
	if err == nil {
		checked := p.opts
		checked.Canary = max(0, checked.Canary)
		err = checked.Validate()
	}
	if err != nil {
		return p, unfit(err)
	}
	return p, nil
}

// shownAtOf reads the time of the preview that a form confirms. It is zero if the form has none.
func shownAtOf(form url.Values) (time.Time, error) {
	text := form.Get("shown_at")
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("shown_at is %.40q; confirm the form of a preview", text)
	}
	return at, nil
}

// shownAtField is the hidden field that shownAtOf reads.
func shownAtField(at time.Time) nameValue {
	return nameValue{"shown_at", at.UTC().Format(time.RFC3339Nano)}
}

// sentence describes the operation. It is the confirmation: an operation runs only if its form contains the same sentence.
func (p plan) sentence() string {
	what := pretty.Thousands(p.count) + " events "
	if p.count == 1 {
		what = "1 event "
	}
	what += meant(p.filter)
	if p.act == "discard" {
		return "Discard " + what + ", for good"
	}
	text := "Re-arm " + what
	if p.opts.Destination != "" {
		text += "; publish to " + p.opts.Destination + " instead"
	}
	if p.opts.Canary > 0 {
		text += fmt.Sprintf("; %s first", pretty.Thousands(p.opts.Canary))
	}
	if p.opts.Rate > 0 {
		text += "; at most " + perSecond(p.opts.Rate) + " per second"
	}
	if p.opts.MaxParkedAgain >= 0 && p.count > 1 {
		text += fmt.Sprintf("; stop when more than %s park again", pretty.Thousands(p.opts.MaxParkedAgain))
	}
	return text
}

func (u *ui) previewRearm(c *guard.Call) error   { return u.preview(c, "rearm", "") }
func (u *ui) previewDiscard(c *guard.Call) error { return u.preview(c, "discard", "") }

// form returns the fields of a request, from its address or its body.
func form(c *guard.Call) url.Values {
	if c.R.Method == http.MethodPost {
		return c.R.PostForm
	}
	return c.Query
}

// preview shows the effect of an operation as of now.
func (u *ui) preview(c *guard.Call, act, notice string) error {
	p, err := planOf(act, form(c))
	if err != nil {
		return err
	}
	if err := cmp.Or(u.desk.Check(p.filter), c.Op.Outbox().CheckDestination(p.opts.Destination)); err != nil {
		return err
	}
	if p.shownAt, err = u.desk.Cutoff(c.R.Context()); err != nil {
		return err
	}
	counted, err := u.count(c.R.Context(), c, p)
	if err != nil {
		return err
	}
	if p.count = counted.events; act == "discard" {
		p.count += counted.erased // erased events can be discarded
	}
	if p.opts.Canary < 0 {
		if p.opts.Canary = 0; p.count > usualCanary {
			p.opts.Canary = usualCanary
		}
	}
	page := previewPage{
		Act: act, Discard: act == "discard", Elsewhere: u.desk.Elsewhere, Count: p.count, Erased: counted.erased, Meant: meant(p.filter), Sentence: p.sentence(),
		Back: filterLink(c.Base(), "parked", backOf(p.filter)), Classes: newTally("By class", "Class", counted.classes, 0, nil),
		Canary: p.opts.Canary, Again: p.opts.MaxParkedAgain, Wait: p.opts.CanaryWait.String(), To: p.opts.Destination, Reason: p.reason,
		CLI: p.commandLine(), Curl: p.curl(c),
	}
	if page.Discard {
		page.Erased = 0
	}
	if counted.destinations != nil {
		page.Destinations = newTally("By destination", "Destination", counted.destinations, 0, nil)
	}
	if p.opts.Rate > 0 {
		page.Rate = strconv.FormatFloat(p.opts.Rate, 'f', -1, 64)
	}
	page.Hidden = p.hidden()
	return u.show(c, "preview", "Preview", page, func(v *view) { v.Notice = notice })
}

// backOf returns the filter of the list to which a cancelled operation leads.
func backOf(f outbox.Filter) outbox.Filter {
	if named(f) {
		return outbox.Filter{}
	}
	return f
}

// hidden returns the hidden fields of the confirming form.
func (p plan) hidden() []nameValue {
	return append([]nameValue{{"count", strconv.Itoa(p.count)}, shownAtField(p.shownAt), {"confirm", p.sentence()}}, hiddenValues(desk.FilterValues(p.filter))...)
}

// hiddenValues returns values as hidden fields.
func hiddenValues(values url.Values) []nameValue {
	var all []nameValue
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, value := range values[name] {
			all = append(all, nameValue{name, value})
		}
	}
	return all
}

// confirmed reports whether the form contains the sentence of its plan, so that nothing happens that was not shown.
func (p plan) confirmed(form url.Values) bool {
	return p.count > 0 && !p.shownAt.IsZero() && form.Get("confirm") == p.sentence()
}

func (u *ui) rearm(c *guard.Call) error {
	p, err := planOf("rearm", c.R.PostForm)
	if err != nil {
		return err
	}
	if !p.confirmed(c.R.PostForm) {
		return u.preview(c, "rearm", "Nothing has changed yet. Check the preview, and confirm again.")
	}
	if err := cmp.Or(u.desk.Check(p.filter), c.Op.Outbox().CheckDestination(p.opts.Destination)); err != nil {
		return err
	}
	p.opts.Limit, p.opts.Before = p.count, p.shownAt
	started, err := u.desk.Operations.Rearm(c.Op, p.filter, p.opts)
	if err != nil {
		return err
	}
	c.Redirect(fmt.Sprintf("operations/%s?of=%d", started.ID, p.count))
	return nil
}

func (u *ui) discard(c *guard.Call) error {
	p, err := planOf("discard", c.R.PostForm)
	if err != nil {
		return err
	}
	if !p.confirmed(c.R.PostForm) || c.R.PostForm.Get("sure") != "yes" || p.reason == "" {
		return u.preview(c, "discard", "Nothing has changed yet. Check the preview, enter a reason, tick the checkbox, and confirm again.")
	}
	if err := u.desk.Check(p.filter); err != nil {
		return err
	}
	started, err := u.desk.Operations.Discard(c.Op, acts.Discarding{Filter: p.filter, Reason: p.reason, Limit: p.count, Before: p.shownAt})
	if err != nil {
		return err
	}
	c.Redirect(fmt.Sprintf("operations/%s?of=%d", started.ID, p.count))
	return nil
}
