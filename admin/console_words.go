package admin

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// consoleFuncs are what pages say things with.
var consoleFuncs = template.FuncMap{
	"num": func(n any) string { return thousands(n) }, "dur": span, "bytes": size,
	"when":  func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05") + " UTC" },
	"stamp": func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) },
}

// thousands writes a whole number with its thousands apart.
func thousands(n any) string {
	digits := fmt.Sprint(n)
	sign := ""
	if rest, negative := strings.CutPrefix(digits, "-"); negative {
		sign, digits = "-", rest
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// span writes a time in its two largest units.
func span(d time.Duration) string {
	units := []struct {
		name string
		long time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}
	for i, unit := range units {
		if d < unit.long {
			continue
		}
		text := fmt.Sprintf("%d %s", d/unit.long, unit.name)
		if rest := d % unit.long; i+1 < len(units) && rest >= units[i+1].long {
			text += fmt.Sprintf(" %d %s", rest/units[i+1].long, units[i+1].name)
		}
		return text
	}
	if d <= 0 {
		return "0 s"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// size writes a number of bytes.
func size(n int64) string {
	amount, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	for amount >= 1000 && len(units) > 1 {
		amount, units = amount/1000, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", amount, units[0])
}

// perSecond writes a rate.
func perSecond(rate float64) string {
	if rate != 0 && rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return thousands(int64(rate + .5))
}

// link is an address within the console: base, a path, names and values.
func link(base, to string, pairs ...string) string {
	query := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		query.Add(pair[0], pair[1])
	}
	return linkTo(base, to, query)
}

func linkTo(base, to string, query url.Values) string {
	if encoded := query.Encode(); encoded != "" {
		return base + to + "?" + encoded
	}
	return base + to
}

// shell quotes a word for a shell, where it needs that.
func shell(word string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !safe(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// tally is a table of sums, the largest first.
type tally struct {
	Caption, Head string
	Rows          []tallied
	// More is how many rows are left out.
	More int
}

type tallied struct {
	Name, Link string
	Events     int64
	Share      int // percent of the largest
	Current    bool
}

// tallyRows is how many sums a table shows.
const tallyRows = 12

// newTally makes a table of sums, of which as many more are not named; to makes the link of one, and may be nil.
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

// names are those of a map of sums that are not empty, sorted; at most 500.
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
