package console

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
)

type historyPage struct {
	Ranges       []kindLink
	About        string
	At           string // the time in the request
	History      admin.History
	Charts       []chart
	Destinations []destinationRow
	Classes      tally
	Rows         []historyRow
	CLI          string
}

// destinationRow counts the events of a destination by outcome.
type destinationRow struct {
	Name string
	admin.Outcomes
}

// historyRow is an interval in the table. Link leads to it.
type historyRow struct {
	admin.HistoryInterval

	Link string
}

// Sent and NotSent are events per second.
func (r historyRow) Sent() string { return r.rate(r.Outcomes.Sent) }

// NotSent is the number of events per second that failed, were returned or were parked.
func (r historyRow) NotSent() string {
	return r.rate(r.Outcomes.Failed + r.Outcomes.Returned + r.Outcomes.Parked)
}

func (r historyRow) rate(n int64) string {
	if r.Duration <= 0 {
		return "–"
	}
	return perSecond(float64(n) / r.Duration.Seconds())
}

// historyRanges are the parts of the history that the page offers, by the value in an address, with the step of the table.
var historyRanges = []struct {
	name, value, flags string
	span               desk.Span
	table              time.Duration
}{
	{"hour", "", "", desk.Hour(), time.Minute},
	{"24 hours", "day", "--since 24h", desk.Day(), 15 * time.Minute},
	{"30 days", "month", "--since 720h --step 24h", desk.Month(), 24 * time.Hour},
}

// around is the time that the page shows before and after a given time.
const around = 30 * time.Minute

// history shows a part of the history.
func (u *ui) history(c *guard.Call) error {
	page, chosen := historyPage{At: c.Query.Get("at")}, -1
	for i, r := range historyRanges {
		current := page.At == "" && r.value == c.Query.Get("range")
		page.Ranges = append(page.Ranges, kindLink{r.name, pageLink(c.Base(), "history", "range", r.value), current})
		if current {
			chosen = i
		}
	}
	if page.At != "" {
		return u.historyAt(c, page)
	}
	if chosen < 0 {
		return guard.BadRequest("range is %.80q; use day or month, or omit it for the last hour", c.Query.Get("range"))
	}
	r := historyRanges[chosen]
	found, err := u.desk.Histories.Recent(c.R.Context(), r.span)
	if err != nil {
		return err
	}
	table, err := u.desk.Histories.Recent(c.R.Context(), desk.Span{Long: r.span.Long, Step: r.table})
	if err != nil {
		return err
	}
	page.About, page.CLI = "the last "+r.name, "luatx history "+r.flags
	page.fill(c.Base(), found, table, "now")
	return u.show(c, "history", "History", page, live)
}

// historyAt shows the hour around a time.
func (u *ui) historyAt(c *guard.Call, page historyPage) error {
	now, err := u.desk.Time(c.R.Context())
	if err != nil {
		return err
	}
	at, err := acts.Moment(page.At, now)
	if err != nil {
		return guard.BadRequest("at: %v", err)
	}
	found, err := c.Op.History(c.R.Context(), admin.HistoryRange{Since: at.Add(-around), Until: at.Add(around)})
	if err != nil {
		return guard.BadRequest("at is %v; the history does not reach that time", at.UTC().Format(time.RFC3339))
	}
	stamp := at.UTC().Format(time.RFC3339)
	page.About, page.CLI = fmt.Sprintf("around %s UTC", at.UTC().Format("2006-01-02 15:04")), "luatx history --at "+stamp
	page.fill(c.Base(), found, found, found.Until.UTC().Format("15:04")+" UTC")
	return u.show(c, "history", "History", page)
}

// fill adds charts and tables. The table may have longer intervals than the charts.
func (p *historyPage) fill(base string, found, table admin.History, to string) {
	p.History = found
	p.Charts = append(charts(found, to), moreCharts(found, to)...)
	total := found.Total
	p.Destinations = destinationRows(total)
	failures := maps.Clone(total.Classes)
	if total.OtherFailures > 0 {
		failures["(others)"] += total.OtherFailures
	}
	p.Classes = newTally("Failures by class", "Class", failures, 0, nil)
	for _, i := range slices.Backward(table.Intervals) {
		p.Rows = append(p.Rows, historyRow{i, pageLink(base, "history", "at", i.At.UTC().Format(time.RFC3339))})
	}
}

// destinationRows returns a row for each destination, the one with the most events that were not sent first.
func destinationRows(total admin.HistoryInterval) []destinationRow {
	var rows []destinationRow
	for name, o := range total.Destinations {
		rows = append(rows, destinationRow{cmp.Or(name, "(none)"), o})
	}
	slices.SortFunc(rows, func(a, b destinationRow) int {
		return cmp.Or(
			cmp.Compare(b.Failed+b.Returned+b.Parked, a.Failed+a.Returned+a.Parked), cmp.Compare(b.Sent, a.Sent), cmp.Compare(a.Name, b.Name),
		)
	})
	if total.Others != (admin.Outcomes{}) {
		rows = append(rows, destinationRow{"(others)", total.Others})
	}
	return rows
}
