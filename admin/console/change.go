package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
)

// changePage shows the effect of an operation on events, and asks for confirmation.
type changePage struct {
	Act, Name, Path, Sentence, Back, At, Reason, CLI string
	State                                            outbox.State
	Count, More                                      int
	Bad, Timed                                       bool
	Destinations                                     tally
	Hidden                                           []nameValue
}

// changePlan is an operation on events as given by a form.
type changePlan struct {
	outbox.Change

	state  outbox.State
	filter outbox.Filter
	count  int // as in the preview
	// shown names the events of the preview. Events that reach the state later are left out, and most states record no time of that.
	shown []outbox.EventName
}

// changePlanOf reads a plan. A time is absolute, or a duration from now.
func changePlanOf(act outbox.Act, form url.Values, now time.Time) (p changePlan, err error) {
	p.Act, p.Reason = act, form.Get("reason")
	if p.state, err = desk.StateOf(form.Get("state")); err != nil {
		return p, err
	}
	if p.filter, err = desk.FilterOf(form); err != nil {
		return p, unfit(err)
	}
	for _, text := range form["shown"] {
		name, err := outbox.ParseEventName(text)
		if err != nil {
			return p, unfit(err)
		}
		p.shown = append(p.shown, name)
	}
	if text := form.Get("count"); text != "" {
		if p.count, err = strconv.Atoi(text); err != nil {
			return p, unfit(fmt.Errorf("count is %.40q; use a whole number", text))
		}
	}
	if text := form.Get("at"); text != "" && act == outbox.ActReschedule {
		after, wrong := time.ParseDuration(text)
		if p.At = now.Add(after).UTC().Truncate(time.Second); wrong != nil {
			if p.At, err = time.Parse(time.RFC3339, text); err != nil {
				return p, unfit(fmt.Errorf("the new due time is %.40q; use a time such as 2026-01-02T15:04:05Z, or a duration from now such as 2h30m", text))
			}
		}
	}
	return p, nil
}

// sentence describes the operation. It is the confirmation: an operation runs only if its form contains the same sentence.
func (p changePlan) sentence() string {
	text := fmt.Sprintf("%s %s %s events", actNames[p.Act], pretty.Thousands(p.count), p.state)
	if p.count == 1 {
		text = strings.TrimSuffix(text, "s")
	}
	if p.filter.String() != "all" {
		text += " " + meant(p.filter)
	}
	switch p.Act {
	case outbox.ActRetry:
		text += ", now"
	case outbox.ActReschedule:
		if !p.At.IsZero() {
			text += ", to " + p.At.UTC().Format(time.RFC3339)
		}
	case outbox.ActCancel, outbox.ActDiscard:
		text += ", for good"
	}
	return text
}

// hidden returns the hidden fields of the confirming form.
func (p changePlan) hidden() []nameValue {
	all := []nameValue{{"count", strconv.Itoa(p.count)}, {"confirm", p.sentence()}, {"state", string(p.state)}}
	for _, name := range p.shown {
		all = append(all, nameValue{"shown", name.String()})
	}
	return append(all, hiddenValues(desk.FilterValues(p.filter))...)
}

// commandLine returns the command for the same operation.
func (p changePlan) commandLine() string {
	words := []string{"luatx", "events", string(p.Act), "--state", string(p.state), "--reason", shell(p.Reason)}
	if p.Reason == "" {
		words[len(words)-1] = "…"
	}
	if !p.At.IsZero() {
		words = append(words, "--at", p.At.UTC().Format(time.RFC3339))
	}
	words = append(words, filterFlags(p.filter)...)
	return strings.Join(append(words, confirmed(p.filter)...), " ")
}

// previewChange shows the effect of an operation as of now. It changes nothing.
func (u *ui) previewChange(c *guard.Call, act outbox.Act, notice string) error {
	now, err := u.desk.Time(c.R.Context())
	if err != nil {
		return err
	}
	p, err := changePlanOf(act, form(c), now)
	if err != nil {
		return err
	}
	if err := u.desk.Check(p.filter); err != nil {
		return err
	}
	destinations, more := map[string]int64{}, 0
	p.shown = nil
	for e, err := range c.Op.Outbox().List(c.R.Context(), p.state, outbox.ListOptions{Filter: p.filter}) {
		if err != nil && e.ID == "" {
			return err
		}
		if len(p.shown) == desk.MaxFilterIDs {
			more++
			continue
		}
		p.shown = append(p.shown, e.Name())
		destinations[e.Destination]++
	}
	p.count = len(p.shown)
	page := changePage{
		Act: string(act), Name: actNames[act], Path: "events-" + string(act), Sentence: p.sentence(), Reason: p.Reason, CLI: p.commandLine(),
		Back: filterLink(c.Base(), "events", backOf(p.filter), "state", string(p.state)), State: p.state, Count: p.count, More: more,
		Bad: desk.NeedsOf(act) == guard.MayPurge, Timed: act == outbox.ActReschedule, Hidden: p.hidden(),
		Destinations: newTally("By destination", "Destination", destinations, 0, nil),
	}
	if !p.At.IsZero() {
		page.At = p.At.UTC().Format(time.RFC3339)
	}
	return u.show(c, "change", "Preview", page, func(v *view) { v.Notice = notice })
}

// change runs an operation on the events of its form, if the form contains the sentence of the preview.
func (u *ui) change(c *guard.Call, act outbox.Act) error {
	now, err := u.desk.Time(c.R.Context())
	if err != nil {
		return err
	}
	sent := c.R.PostForm
	p, err := changePlanOf(act, sent, now)
	if err != nil {
		return err
	}
	sure := desk.NeedsOf(act) < guard.MayPurge || sent.Get("sure") == "yes"
	if p.count == 0 || p.count != len(p.shown) || sent.Get("confirm") != p.sentence() || !sure || p.Validate() != nil {
		return u.previewChange(c, act, "Nothing has changed yet. Check the preview, fill in the reason and the other required fields, and confirm again.")
	}
	if err := u.desk.Check(p.filter); err != nil {
		return err
	}
	p.filter.Events = p.shown
	if err := u.desk.Check(outbox.Filter{Events: p.shown}); err != nil {
		return err
	}
	started, err := u.desk.Operations.Change(c.Op, p.state, p.filter, p.Change, p.count)
	if err != nil {
		return err
	}
	c.Redirect(fmt.Sprintf("operations/%s?of=%d", started.ID, p.count))
	return nil
}
