package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/pretty"
)

// deadPlan is an operation on dead letters as given by a form.
type deadPlan struct {
	act    string // retry or discard
	stream string
	filter admin.DeadLetterFilter
	since  string // as in the form
	reason string
	count  int // as in the preview
	canary int // -1 for the default
	wait   time.Duration
}

// deadPlanOf reads a plan as of the time of its preview. Missing fields have their defaults.
func deadPlanOf(act string, form url.Values, shownAt time.Time) (p deadPlan, err error) {
	p = deadPlan{act: act, stream: form.Get("stream"), since: form.Get("since"), reason: form.Get("reason"), canary: -1, wait: usualWait}
	if p.filter, err = desk.DeadFilterOf(form, shownAt); err == nil {
		err = desk.CheckDead(p.stream, p.filter)
	}
	if err != nil {
		return p, unfit(err)
	}
	for name, into := range map[string]*int{"count": &p.count, "canary": &p.canary} {
		if text := form.Get(name); text != "" {
			if *into, err = strconv.Atoi(text); err != nil || *into < 0 {
				return p, unfit(fmt.Errorf("%s is %.40q; use a whole number that is not negative", name, text))
			}
		}
	}
	if text := form.Get("canary_wait"); text != "" {
		if p.wait, err = time.ParseDuration(text); err != nil {
			return p, unfit(fmt.Errorf("canary_wait is %.40q; use a duration such as 30s or 5m", text))
		}
	}
	options := admin.DeadLetterOptions{Limit: p.count, Canary: max(0, p.canary), CanaryWait: p.wait}
	if err := options.Validate(); err != nil {
		return p, unfit(err)
	}
	return p, nil
}

// meant describes the selected dead letters of a plan, without their number.
func (p deadPlan) meant() string {
	words := []string{"of " + p.stream}
	if len(p.filter.IDs) > 0 {
		words = append(words, "selected by id")
	}
	if p.filter.Group != "" {
		words = append(words, "of the group "+p.filter.Group)
	}
	if p.filter.Type != "" {
		words = append(words, "of type "+p.filter.Type)
	}
	if p.filter.Text != "" {
		words = append(words, "whose error contains “"+p.filter.Text+"”")
	}
	if p.since != "" {
		words = append(words, "dead-lettered within the last "+p.since)
	}
	return strings.Join(words, ", ")
}

// sentence describes the operation. It is the confirmation: an operation runs only if its form contains the same sentence.
func (p deadPlan) sentence() string {
	what := pretty.Thousands(p.count) + " dead letters "
	if p.count == 1 {
		what = "1 dead letter "
	}
	what += p.meant()
	if p.act == "discard" {
		return "Discard " + what + ", for good"
	}
	text := "Put back " + what
	if p.canary > 0 {
		text += fmt.Sprintf("; %s first", pretty.Thousands(p.canary))
	}
	return text
}

// commandLine returns the command for the same operation.
func (p deadPlan) commandLine() string {
	words := []string{"luatx", "dead", p.act}
	add := func(name, value string) {
		if value != "" {
			words = append(words, "--"+name, shell(value))
		}
	}
	add("text", p.filter.Text)
	add("group", p.filter.Group)
	add("type", p.filter.Type)
	add("since", p.since)
	if p.filter.String() == "all" {
		words = append(words, "--all")
	}
	if p.canary > 0 {
		add("canary", strconv.Itoa(p.canary))
		add("canary-wait", p.wait.String())
	}
	add("reason", cmp.Or(p.reason, "…"))
	words = append(words, "--yes", "--", shell(p.stream))
	for _, id := range p.filter.IDs {
		words = append(words, shell(id))
	}
	return strings.Join(words, " ")
}

// curl returns the API request for the same operation, without credentials.
func (p deadPlan) curl(c *guard.Call) string {
	body, filter := map[string]any{"stream": p.stream, "reason": cmp.Or(p.reason, "…")}, map[string]any{}
	for name, value := range map[string]string{"text": p.filter.Text, "group": p.filter.Group, "type": p.filter.Type} {
		if value != "" {
			filter[name] = value
		}
	}
	if since, err := time.ParseDuration(p.since); err == nil {
		filter["since_seconds"] = since.Seconds()
	}
	if len(p.filter.IDs) > 0 {
		filter["ids"] = p.filter.IDs
	}
	if body["filter"] = filter; len(filter) == 0 {
		delete(body, "filter")
		body["all"] = true
	}
	if p.canary > 0 {
		body["canary"], body["canary_wait_seconds"] = p.canary, p.wait.Seconds()
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // for a shell
	_ = encoder.Encode(body)     // maps of strings and numbers cannot fail
	return curlLine(c, "dead/"+p.act, strings.TrimSpace(text.String()))
}
