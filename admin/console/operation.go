package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
)

// operationPage shows the progress of an operation.
type operationPage struct {
	ID, Name, Who, Why, Level, State, Text, Link string
	Begun                                        time.Time
	Running                                      bool
	Done, Total                                  int
	Figures                                      []figure
	Again                                        *tally
	Skipped                                      []tallied
	Findings                                     []string
}

// operationNames are the displayed names of the kinds of operations.
var operationNames = map[string]string{"rearm": "Re-arm", "discard": "Discard", "retry": "Retry", "reschedule": "Reschedule", "cancel": "Cancel", "park": "Park", "import": "Import dead letters", "fix": "Repair inconsistencies"}

// shownFindings is the maximum number of findings on a page.
const shownFindings = 200

func (u *ui) operation(c *guard.Call) error {
	o, ok := u.desk.Operations.Get(c.R.PathValue("id"))
	if !ok {
		return &guard.Problem{Status: http.StatusNotFound, Title: "Operation not found", Detail: "This console lists only its own latest operations, since it started. The audit records the changes of all operations."}
	}
	page := newOperationPage(c.Base(), o)
	page.Total, _ = strconv.Atoi(c.Query.Get("of"))
	if page.Total = max(page.Total, page.Done); !page.Running {
		page.Total = 0 // a finished operation has no progress bar
	}
	if o.Rearm != nil {
		page.rearmed(*o.Rearm)
	}
	if o.Dead != nil {
		page.acted(*o.Dead)
	}
	now, err := u.desk.Samples.Now(c.R.Context())
	if err != nil {
		return err
	}
	page.Figures = append(page.Figures, figure{Name: "Parked now", Value: pretty.Thousands(now.Stats.Counts.Parked)},
		figure{Name: "Pending now", Value: pretty.Thousands(now.Stats.Counts.Pending)})
	if now.Rates != nil {
		page.Figures = append(page.Figures, figure{Name: "Sent", Value: perSecond(now.Rates.Sent), Note: "per second, by all relays"})
	}
	for i, f := range o.Findings {
		if i == shownFindings {
			page.Findings = append(page.Findings, fmt.Sprintf("and %s more", pretty.Thousands(len(o.Findings)-shownFindings)))
			break
		}
		page.Findings = append(page.Findings, f.String())
	}
	every := func(*view) {}
	if page.Running || time.Since(o.Ended) < time.Minute { // re-armed events may still be on their way
		every = func(v *view) { v.Every, v.Reload = 1000, true }
	}
	return u.show(c, "operation", page.Name, page, every)
}

func newOperationPage(base string, o desk.Operation) operationPage {
	p := operationPage{
		ID: o.ID, Name: cmp.Or(operationNames[o.Kind], o.Kind), Who: o.Who, Why: o.Why, Begun: o.Begun, Running: o.Running,
		Done: o.Done, Link: base + "operations/" + o.ID,
	}
	took := span(o.Ended.Sub(o.Begun))
	switch {
	case o.Running:
		p.State, p.Text = "running", pretty.Thousands(o.Done)+" done so far"
	case o.Error != "":
		p.Level, p.State, p.Text = "bad", "failed", fmt.Sprintf("The operation failed after %s, with %s done: %s", took, pretty.Thousands(o.Done), o.Error)
	case o.Stopped:
		p.Level, p.State, p.Text = "warn", "stopped", fmt.Sprintf("The operation was stopped after %s, with %s done. The rest is unchanged.", took, pretty.Thousands(o.Done))
	default:
		p.Level, p.State, p.Text = "good", "done", fmt.Sprintf("%s done in %s.", pretty.Thousands(o.Done), took)
	}
	if r := o.Rearm; r != nil && r.Stopped != "" {
		p.Level, p.State = "bad", "stopped: "+stops[r.Stopped]
		p.Text = fmt.Sprintf("%s were re-armed before the operation stopped. Most failures are of class %s. Fix the cause, then start a new operation.", pretty.Thousands(r.Rearmed), cmp.Or(r.Class, "(unknown)"))
		if r.Stopped == outbox.StoppedFull {
			p.Text = fmt.Sprintf("%s were re-armed before the outbox of a shard was full. Start a new operation later, at a lower rate.", pretty.Thousands(r.Rearmed))
		}
	}
	if r := o.Dead; r != nil && r.Stopped {
		p.Level, p.State = "bad", "stopped: the group did not handle the canary"
		p.Text = fmt.Sprintf("%s were put back before the operation stopped. Fix the cause of the failures, then start a new operation.", pretty.Thousands(r.Done))
	}
	for _, outcome := range slices.Sorted(maps.Keys(o.Skipped)) {
		if n := o.Skipped[outcome]; n > 0 {
			p.Skipped = append(p.Skipped, tallied{Name: string(outcome), Events: int64(n)})
		}
	}
	return p
}

// stops describes the reasons why a re-arm stops.
var stops = map[outbox.Stop]string{
	outbox.StoppedByCanary:   "the canary parked again",
	outbox.StoppedByFailures: "too many events parked again",
	outbox.StoppedFull:       "an outbox is full",
}

// rearmed adds the figures of a re-arm.
func (p *operationPage) rearmed(r outbox.RearmResult) {
	p.Figures = append(p.Figures, figure{Name: "Re-armed", Value: pretty.Thousands(r.Rearmed)})
	if canary := r.Canary; canary != (outbox.Canary{}) {
		note := fmt.Sprintf("%d parked again, %d in progress", canary.ParkedAgain, canary.Trying)
		p.Figures = append(p.Figures, figure{
			Name: "Canary sent", Value: fmt.Sprintf("%d of %d", canary.Sent, canary.Sent+canary.ParkedAgain+canary.Trying), Note: note,
			Level: levelIf(canary.ParkedAgain > 0, "warn"),
		})
		if p.Running && r.Rearmed <= canary.Sent+canary.ParkedAgain+canary.Trying {
			p.Text = "The canary was re-armed. The rest follows when relays have published it."
		}
	}
	p.Figures = append(p.Figures, figure{Name: "Parked again", Value: pretty.Thousands(r.ParkedAgain), Level: levelIf(r.ParkedAgain > 0, "bad")})
	if len(r.Classes) > 0 {
		sums := map[string]int64{}
		for class, n := range r.Classes {
			sums[class] = int64(n)
		}
		again := newTally("Parked again, by class", "Class", sums, 0, nil)
		p.Again = &again
	}
}

// acted adds the figures of an operation on dead letters.
func (p *operationPage) acted(r admin.DeadLetterResult) {
	c := r.Canary
	if c == (admin.DeadLetterCanary{}) {
		return
	}
	p.Figures = append(p.Figures, figure{
		Name: "Canary handled", Value: fmt.Sprintf("%d of %d", c.Handled, c.Handled+c.DeadAgain+c.Trying),
		Note: fmt.Sprintf("%d are dead letters again, %d in progress", c.DeadAgain, c.Trying), Level: levelIf(c.DeadAgain > 0, "warn"),
	})
	if p.Running && c.Trying > 0 {
		p.Text = "The canary was put back. The rest follows when the group has acknowledged it."
	}
}

func (u *ui) operations(c *guard.Call) error {
	list := []operationPage{}
	for _, o := range u.desk.Operations.List() {
		list = append(list, newOperationPage(c.Base(), o))
	}
	slices.SortStableFunc(list, func(a, b operationPage) int { return b.Begun.Compare(a.Begun) })
	return u.show(c, "operations", "Operations", struct{ List []operationPage }{list}, live)
}

func (u *ui) stop(c *guard.Call) error {
	id := c.R.PostForm.Get("id")
	if err := u.desk.Stop(c.Who, id); err != nil {
		return err
	}
	c.Redirect("operations/" + id)
	return nil
}
