package console

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/outbox"
)

type parkedPageView struct {
	Total                                           int64
	Match                                           string
	Class, AllLink                                  string
	Classes                                         []tallied
	Destinations, Types                             []string
	Filter                                          outbox.Filter
	Older                                           string
	Filtered                                        bool
	Rows                                            []parkedRow
	First, Next, RearmLink, DiscardLink, ExportLink string
}

// parkedRow is an event in the list.
type parkedRow struct {
	Name, ID, Key, Type, Destination, Class, Error, Age, Link string
	At                                                        time.Time
	Attempts                                                  int
	Erased                                                    bool
}

// parkedRows is the maximum number of events on a page.
const parkedRows = 50

// liveHeader marks requests for the live parts of a page.
const liveHeader = "X-Luatx-Live"

func (u *ui) parked(c *guard.Call) error {
	ctx, query, base := c.R.Context(), c.Query, c.Base()
	filter, err := u.desk.EventFilter(query)
	if err != nil {
		return err
	}
	now, err := u.desk.Samples.Now(ctx)
	if err != nil {
		return err
	}
	var found desk.Page
	if c.R.Header.Get(liveHeader) == "" { // a refresh reads only the sums
		if found, err = u.desk.Parked(ctx, c.Op, filter, query.Get("cursor"), parkedRows); err != nil {
			return err
		}
	}
	sums := now.Stats.Parked
	page := parkedPageView{
		Total: sums.Total, Class: filter.Class, Filter: filter, Filtered: filter.String() != "all",
		Destinations: names(sums.ByDestination), Types: names(sums.ByType),
		RearmLink: filterLink(base, "preview-rearm", filter), DiscardLink: filterLink(base, "preview-discard", filter),
		ExportLink: filterLink(base, "api/parked/export", filter),
	}
	if filter.OlderThan > 0 {
		page.Older = filter.OlderThan.String()
	}
	others := filter
	others.Class = ""
	page.AllLink = filterLink(base, "parked", others)
	page.Classes = newTally("", "", sums.ByClass, 0, func(class string) string {
		others.Class = class
		return filterLink(base, "parked", others)
	}).Rows
	for i := range page.Classes {
		page.Classes[i].Current = page.Classes[i].Name == filter.Class
	}
	for _, e := range found.Events {
		page.Rows = append(page.Rows, u.row(base, e, now.Stats.At))
	}
	if query.Get("cursor") != "" {
		page.First = filterLink(base, "parked", filter)
	}
	if found.Next != "" {
		page.Next = filterLink(base, "parked", filter, "cursor", found.Next)
	}
	return u.show(c, "parked", "Parked events", page, live)
}

func (u *ui) row(base string, e outbox.Event, now time.Time) parkedRow {
	return parkedRow{
		Name: e.Name().String(), ID: e.ID, Key: e.Key, Type: typeOf(e), Destination: e.Destination,
		Class: e.Class, Error: e.Error, Age: span(now.Sub(e.At)), At: e.At, Attempts: e.Attempts, Erased: e.Erased,
		Link: eventLink(base, e),
	}
}

// meant describes the events that match a filter. The text follows their number.
func meant(f outbox.Filter) string {
	var words []string
	add := func(text, value string) {
		if value != "" {
			words = append(words, text+" "+value)
		}
	}
	if named(f) {
		words = append(words, "selected by id")
	}
	add("of class", f.Class)
	add("for", f.Destination)
	add("of type", f.Type)
	add("with the ordering key", f.Key)
	add("of the aggregate", f.Aggregate)
	if f.Text != "" {
		words = append(words, "whose error contains “"+f.Text+"”")
	}
	if f.OlderThan > 0 {
		words = append(words, "parked for at least "+span(f.OlderThan))
	}
	if len(f.Slots) > 0 && !named(f) {
		words = append(words, fmt.Sprintf("in slots %v", f.Slots))
	}
	if len(words) == 0 {
		return "(all parked events)"
	}
	return strings.Join(words, ", ")
}

// named reports whether a filter selects events by their ids.
func named(f outbox.Filter) bool { return len(f.IDs)+len(f.Events) > 0 }

// unfit returns the problem for invalid input.
func unfit(err error) error {
	if p, ok := errors.AsType[*guard.Problem](err); ok {
		return p
	}
	return &guard.Problem{Status: http.StatusBadRequest, Title: "Invalid input", Detail: err.Error()}
}

func typeOf(e outbox.Event) string {
	if e.Message == nil {
		return ""
	}
	return e.Message.Type()
}
