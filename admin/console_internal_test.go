package admin

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/outbox"
)

// TestConsoleWords holds how numbers, times and sizes are written.
func TestConsoleWords(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		thousands(0): "0", thousands(999): "999", thousands(1000): "1,000", thousands(int64(-1234567)): "-1,234,567",
		span(-time.Second): "0 s", span(0): "0 s", span(250 * time.Millisecond): "250 ms", span(59 * time.Second): "59 s", span(90 * time.Second): "1 min 30 s",
		span(2*time.Hour + 13*time.Minute + 5*time.Second): "2 h 13 min", span(49 * time.Hour): "2 d 1 h", span(24*time.Hour + time.Minute): "1 d",
		size(999): "999 B", size(1500): "1.5 kB", size(3_200_000_000): "3.2 GB", perSecond(0): "0", perSecond(1.26): "1.3", perSecond(4999.6): "5,000",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestConsoleShell holds that a shell reads every word as it was.
func TestConsoleShell(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	for _, word := range []string{"", "plain", "it's", "a b", "$(id)", "`id`", "-x", "\\", "'", "a\nb", "!!", "*", "~", "{a,b}", "ü", "a;b&c|d>e"} {
		got, err := exec.CommandContext(t.Context(), sh, "-c", "printf %s "+shell(word)).Output()
		if err != nil || string(got) != word {
			t.Errorf("%q became %q, %v", word, got, err)
		}
	}
}

// TestConsolePretty holds how data is shown: JSON laid out, text as it is, other bytes in hex, and no more than a page bears.
func TestConsolePretty(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ data, text, note string }{
		{``, "", "no data"},
		{`{"b":1,"a":[1,2.50,9007199254740993]}`, "{\n  \"b\": 1,\n  \"a\": [\n    1,\n    2.50,\n    9007199254740993\n  ]\n}", ""},
		{`plain <b>`, "plain <b>", ""},
		{"\xff\x00", "ff00", "no text"},
		{`"` + strings.Repeat("x", 300_000) + `"`, `"` + strings.Repeat("x", maxShown-1), "The first 262.1 kB of 300.0 kB."},
	} {
		text, note := readable([]byte(c.data))
		if text != c.text || (note == "") != (c.note == "") || !strings.Contains(note, c.note) {
			t.Errorf("%.40q: %.80q, %q", c.data, text, note)
		}
	}
}

// TestConsoleChart holds that a chart has the times and the values of its samples, and says what it shows.
func TestConsoleChart(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_700_000_000, 0)
	at := func(seconds int, parked int64, rates *Rates) sample {
		return sample{Stats: Stats{At: begin.Add(time.Duration(seconds) * time.Second), Counts: outbox.Counts{Parked: parked}}, Rates: rates}
	}
	some := []sample{at(0, 0, nil), at(10, 50, &Rates{Sent: 8}), at(40, 100, &Rates{Sent: 2, Enqueued: 4})}
	for _, c := range charts(some[:2]) {
		if len(c.Lines) != 0 {
			t.Errorf("two samples are drawn: %+v", c)
		}
	}
	drawn := charts(some)
	if parked := drawn[2]; parked.Lines[0].Points != "0.0,97.0 150.0,50.0 600.0,3.0" || parked.Top != "100" || parked.From != "40 s ago" ||
		parked.Label != "Parked over 40 s: parked 100 now; at most 100" {
		t.Errorf("%+v", parked)
	}
	if rate := drawn[0]; rate.Lines[1].Points != "150.0,3.0 600.0,73.5" || rate.Lines[0].Now != "4.0" || rate.Lines[1].Now != "2.0" {
		t.Errorf("%+v", rate)
	}
}

// TestConsoleFullness holds that a shard is as full as what fills it most.
func TestConsoleFullness(t *testing.T) {
	t.Parallel()
	f := fullness{Events: 50, Parked: 85, Bytes: 10}
	f.measure("events", f.Events, 100)
	f.measure("bytes", f.Bytes, 0)
	f.measure("parked", f.Parked, 100)
	if f.Percent != 85 || f.Of != "parked" || f.Level != "warn" {
		t.Errorf("%+v", f)
	}
	f.measure("bytes", f.Bytes, 10)
	if f.Percent != 100 || f.Of != "bytes" || f.Level != "bad" {
		t.Errorf("%+v", f)
	}
}
