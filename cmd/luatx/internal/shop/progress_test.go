package shop

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

func TestProgressPrintsALineNowAndThenAndTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		total, sets int // each Set counts one more, up to the total
		pause       time.Duration
		want        []string
	}{
		"twelve seconds": {2000, 1201, 10 * time.Millisecond, []string{
			"  0%  0 of 2,000  0 kills", " 25%  500 of 2,000  0 kills", " 50%  1,000 of 2,000  1 kill", " 60%  1,200 of 2,000  2 kills",
		}},
		"nothing repeats": {1, 4, printEvery, []string{"  0%  0 of 1  0 kills", "100%  1 of 1  0 kills …", "100%  1 of 1  0 kills"}},
		"of nothing":      {0, 0, 0, []string{"100%  0 of 0  0 kills"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				p := NewProgress(&out, false, false, "x", c.total)
				for done := range c.sets {
					p.Set(min(done, c.total), done/600)
					<-time.After(c.pause)
				}
				p.Finish()
				if want := "x: " + strings.Join(c.want, "\nx: ") + "\n"; out.String() != want {
					t.Errorf("printed\n%s, want\n%s", &out, want)
				}
			})
		})
	}
}

func TestProgressBarIsDrawnRarelyAndFitsEightyColumns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewProgress(&out, true, true, "pipeline", 1_000_000)
		for range 1000 {
			p.Set(500_000, 3) // all at one moment, so drawn once
		}
		<-time.After(redrawEvery)
		p.Set(1_000_001, 100)
		p.Finish()
		draws := strings.Split(strings.TrimPrefix(out.String(), "\r"), "\r")
		if len(draws) != 3 || !strings.HasSuffix(out.String(), "\n") || strings.Count(out.String(), "\n") != 1 {
			t.Fatalf("drawn %d times: %q", len(draws), out.String())
		}
		for i, want := range []string{" 50%  500,000 of 1,000,000  3 kills", "100%  1,000,001 of 1,000,000  100 kills …", "100%  1,000,001 of 1,000,000  100 kills"} {
			text := strings.TrimSpace(escapes.ReplaceAllString(draws[i], ""))
			if !strings.HasSuffix(text, want) || strings.Count(text, "█")+strings.Count(text, "░") != barWidth || utf8.RuneCountInString(text) > 80 {
				t.Errorf("draw %d is %q, want %q", i, text, want)
			}
		}
		if strings.Count(draws[0], "█") != barWidth/2 {
			t.Errorf("half way the bar is %q", draws[0])
		}
	})
}
