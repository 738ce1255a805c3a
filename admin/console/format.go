package console

import (
	"fmt"
	"html/template"
	"strconv"
	"time"

	"github.com/luatx/luatx/internal/pretty"
)

// consoleFuncs are the functions that templates may call.
var consoleFuncs = template.FuncMap{
	"num": pretty.Thousands, "dur": span, "bytes": size, "rate": perSecond,
	"when":  func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05") + " UTC" },
	"stamp": func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) },
}

// span formats a duration in its two largest units.
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

// size formats a number of bytes.
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

// perSecond formats a rate.
func perSecond(rate float64) string {
	if rate != 0 && rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return pretty.Thousands(int64(rate + .5))
}
