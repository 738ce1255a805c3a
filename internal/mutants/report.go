package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
)

type score struct{ killed, all int }

// interval returns the Wilson score interval at 95 %: the range of shares that fit the sample.
func (s score) interval() (low, high float64) {
	if s.all == 0 {
		return 0, 1
	}
	const z = 1.96
	n, p := float64(s.all), s.share()
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	margin := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, middle-margin), min(1, middle+margin)
}

func (s score) share() float64 { return float64(s.killed) / float64(s.all) }

func (s score) String() string {
	low, high := s.interval()
	return fmt.Sprintf("%d of %d\t%.0f %%\t(%.0f to %.0f)", s.killed, s.all, 100*s.share(), 100*low, 100*high)
}

// report prints the score of each file and of all files, and the survivors as edits.
func report(out io.Writer, results []result, floor float64) error {
	if len(results) == 0 {
		return errors.New("no mutant ran")
	}
	files := map[string]score{}
	var total score
	for _, r := range results {
		s := files[r.file]
		s.all++
		total.all++
		if r.outcome == killed {
			s.killed++
			total.killed++
		} else {
			_, _ = fmt.Fprintf(out, "\nsurvivor: %s\n", r.diff())
		}
		files[r.file] = s
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		_, _ = fmt.Fprintf(w, "%s\t%v\n", file, files[file])
	}
	_, _ = fmt.Fprintf(w, "all\t%v\n", total)
	if err := w.Flush(); err != nil {
		return err
	}
	if _, high := total.interval(); high < floor {
		return fmt.Errorf("at most %.0f %% of the mutants are noticed, below %.0f %%", 100*high, 100*floor)
	}
	return nil
}
