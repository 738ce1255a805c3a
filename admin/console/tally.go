package console

import (
	"cmp"
	"slices"
)

// tally is a table of sums, the largest first.
type tally struct {
	Caption, Head string
	Rows          []tallied
	// More is the number of omitted rows.
	More int
}

type tallied struct {
	Name, Link string
	Events     int64
	Share      int // percent of the largest
	Current    bool
}

// tallyRows is the number of sums in a table.
const tallyRows = 12

// newTally returns a table of sums. The caller has left out more further names. The function to returns the link of a name,
// and may be nil.
func newTally(caption, head string, sums map[string]int64, more int, to func(name string) string) tally {
	t := tally{Caption: caption, Head: head, More: more}
	for name, events := range sums {
		if events <= 0 {
			continue
		}
		row := tallied{Name: cmp.Or(name, "(none)"), Events: events}
		if to != nil && name != "" {
			row.Link = to(name)
		}
		t.Rows = append(t.Rows, row)
	}
	slices.SortFunc(t.Rows, func(a, b tallied) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Name, b.Name))
	})
	for i := range t.Rows {
		t.Rows[i].Share = max(1, int(100*t.Rows[i].Events/t.Rows[0].Events))
	}
	if len(t.Rows) > tallyRows {
		t.More, t.Rows = more+len(t.Rows)-tallyRows, t.Rows[:tallyRows]
	}
	return t
}

// names returns the names of a map of sums, sorted and without the empty one; at most 500.
func names(sums map[string]int64) []string {
	var all []string
	for name, events := range sums {
		if name != "" && events > 0 {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all[:min(len(all), 500)]
}
