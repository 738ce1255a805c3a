package console

import (
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/outbox"
)

type blockedPage struct {
	Sum         admin.Blocked
	Filter      outbox.Filter
	Filtered    bool
	Rows        []blockedRow
	First, Next string
}

// blockedRow is a parked event and the number of events that wait behind it.
type blockedRow struct {
	parkedRow

	HoldsBack int
}

// blocked lists the parked events that hold back others.
func (u *ui) blocked(c *guard.Call) error {
	ctx, query, base := c.R.Context(), c.Query, c.Base()
	filter, err := u.desk.EventFilter(query)
	if err != nil {
		return err
	}
	now, err := u.desk.Samples.Now(ctx)
	if err != nil {
		return err
	}
	page := blockedPage{Sum: now.Stats.Blocked, Filter: filter, Filtered: filter.String() != "all"}
	if c.R.Header.Get(liveHeader) == "" { // a refresh reads only the sums
		found, err := u.desk.Blocked(ctx, c.Op, filter, query.Get("cursor"), parkedRows)
		if err != nil {
			return err
		}
		for _, e := range found.Events {
			page.Rows = append(page.Rows, blockedRow{u.row(base, e, now.Stats.At), e.HoldsBack})
		}
		if found.Next != "" {
			page.Next = filterLink(base, "blocked", filter, "cursor", found.Next)
		}
	}
	if query.Get("cursor") != "" {
		page.First = filterLink(base, "blocked", filter)
	}
	return u.show(c, "blocked", "Blocked ordering keys", page, live)
}
