package shop

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// clock stands still until it is moved.
type clock struct{ time time.Time }

func (c *clock) now() time.Time { return c.time }

func newTestProgress(out io.Writer, terminal bool, label string, total int) (*Progress, *clock) {
	c := &clock{time.Unix(1, 0)}
	p := NewProgress(out, terminal, terminal, label, total)
	p.now = c.now
	return p, c
}

func TestProgressLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p, c := newTestProgress(&out, false, "scripted", 2000)
	for done := range 1201 { // twelve seconds
		p.Set(done, done/600)
		c.time = c.time.Add(10 * time.Millisecond)
	}
	p.Finish()
	want := "scripted:   0%  0 of 2,000  0 kills\n" +
		"scripted:  25%  500 of 2,000  0 kills\n" +
		"scripted:  50%  1,000 of 2,000  1 kill\n" +
		"scripted:  60%  1,200 of 2,000  2 kills\n"
	if got := out.String(); got != want {
		t.Errorf("printed\n%s, want\n%s", got, want)
	}
}

func TestProgressBar(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p, c := newTestProgress(&out, true, "pipeline", 1_000_000)
	for range 1000 {
		p.Set(500_000, 3) // all at one moment: drawn once
	}
	c.time = c.time.Add(redrawEvery)
	p.Set(1_000_001, 100)
	p.Finish()
	draws := strings.Split(strings.TrimPrefix(out.String(), "\r"), "\r")
	if len(draws) != 3 || !strings.HasSuffix(out.String(), "\n") || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("drawn %d times: %q", len(draws), out.String())
	}
	for i, want := range []string{" 50%  500,000 of 1,000,000  3 kills", "100%  1,000,001 of 1,000,000  100 kills …", "100%  1,000,001 of 1,000,000  100 kills"} {
		text := strings.TrimSpace(escapes.ReplaceAllString(draws[i], ""))
		if !strings.HasSuffix(text, want) || strings.Count(text, "█")+strings.Count(text, "░") != barWidth {
			t.Errorf("draw %d is %q, want %q", i, text, want)
		}
		if utf8.RuneCountInString(text) > 80 {
			t.Errorf("draw %d is wider than 80 columns: %q", i, text)
		}
	}
	if strings.Count(draws[0], "█") != barWidth/2 {
		t.Errorf("half way the bar is %q", draws[0])
	}
}

func TestProgressOfNothing(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	NewProgress(&out, false, false, "x", 0).Finish()
	if got := out.String(); got != "x: 100%  0 of 0  0 kills\n" {
		t.Errorf("printed %q", got)
	}
}

func TestProgressRepeatsNothingButTheEnd(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p, c := newTestProgress(&out, false, "x", 2)
	for _, done := range []int{0, 2, 2, 2} {
		p.Set(done, 1)
		c.time = c.time.Add(printEvery)
	}
	p.Finish()
	if want := "x:   0%  0 of 2  1 kill\nx: 100%  2 of 2  1 kill …\nx: 100%  2 of 2  1 kill\n"; out.String() != want {
		t.Errorf("printed\n%s, want\n%s", out.String(), want)
	}
}

// Run with the race detector.
func TestProgressFromManyGoroutines(t *testing.T) {
	t.Parallel()
	p := NewProgress(io.Discard, true, true, "x", 1000)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				p.Set(i, 0)
			}
		})
	}
	wg.Wait()
	p.Finish()
}
