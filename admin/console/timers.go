package console

import (
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
)

type timersPage struct {
	Stats  admin.TimerStats
	States []kindLink
	Text   string
	State  string
	Timers []admin.Timer
	Now    time.Time

	First, Next string
}

// timerStates are the lists of timers, by the value in an address.
var timerStates = []struct {
	name, value string
	filter      admin.TimerFilter
}{{"open", "", admin.TimerFilter{}}, {"due", "due", admin.TimerFilter{Due: true}}, {"decided", "decided", admin.TimerFilter{Decided: true}}}

// timersShown is the maximum number of timers on a page.
const timersShown = 100

// timers shows the totals of the timers, and a page of the list.
func (u *ui) timers(c *guard.Call) error {
	page := timersPage{Text: c.Query.Get("text"), State: c.Query.Get("state")}
	var chosen *admin.TimerFilter
	for _, s := range timerStates {
		if s.value == page.State {
			chosen = &s.filter
		}
		pairs := []string{"state", s.value}
		if page.Text != "" {
			pairs = append(pairs, "text", page.Text)
		}
		page.States = append(page.States, kindLink{s.name, pageLink(c.Base(), "timers", pairs...), s.value == page.State})
	}
	if chosen == nil {
		return guard.BadRequest("state is %.80q; use due or decided, or omit it for open timers", page.State)
	}
	chosen.Text, chosen.After = page.Text, c.Query.Get("cursor")
	ctx := c.R.Context()
	var err error
	if page.Stats, err = c.Op.TimerStats(ctx); err != nil {
		return err
	}
	if page.Now, err = u.desk.Time(ctx); err != nil {
		return err
	}
	found, err := desk.Timers(ctx, c.Op, *chosen, timersShown)
	if err != nil {
		return err
	}
	page.Timers = found.Timers
	link := func(more ...string) string {
		return pageLink(c.Base(), "timers", append([]string{"state", page.State, "text", page.Text}, more...)...)
	}
	if chosen.After != "" {
		page.First = link()
	}
	if found.Next != "" {
		page.Next = link("cursor", found.Next)
	}
	return u.show(c, "timers", "Timers", page, live)
}
