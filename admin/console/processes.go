package console

import (
	"slices"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
)

type processesPage struct {
	Kinds     []kindLink
	Processes []processView
	Triggers  []processView
	// NoRelay reports that no relay is alive.
	NoRelay bool
}

type kindLink struct {
	Name, Link string
	Current    bool
}

type processView struct {
	admin.Process

	Heard time.Duration
}

// processes shows the running and the crashed processes.
func (u *ui) processes(c *guard.Call) error {
	chosen := c.Query.Get("kind")
	page := processesPage{NoRelay: true, Kinds: []kindLink{{"all", pageLink(c.Base(), "processes"), chosen == ""}}}
	for _, kind := range admin.ProcessKinds() {
		page.Kinds = append(page.Kinds, kindLink{kind, pageLink(c.Base(), "processes", "kind", kind), chosen == kind})
	}
	if chosen != "" && !slices.Contains(admin.ProcessKinds(), chosen) {
		return guard.BadRequest("kind is %.80q; use one of %v", chosen, admin.ProcessKinds())
	}
	now, err := u.desk.Time(c.R.Context())
	if err != nil {
		return err
	}
	for p, err := range c.Op.Processes(c.R.Context()) {
		if err != nil {
			return err
		}
		if p.Kind == "relay" && !p.Dead {
			page.NoRelay = false
		}
		if chosen == "" || p.Kind == chosen {
			shown := processView{p, max(0, now.Sub(p.Seen))}
			page.Processes = append(page.Processes, shown)
			if p.Trigger != nil {
				page.Triggers = append(page.Triggers, shown)
			}
		}
	}
	return u.show(c, "processes", "Processes", page, live)
}
