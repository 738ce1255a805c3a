package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Text writes a summary for a terminal.
func (r *Report) Text(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "seed\t%d\t%s\n", r.Seed, r.Replay)
	fmt.Fprintf(w, "commits\t%d\t%.0f per second, %d calls, %d handler runs, %d events published, %d of them more than once\n", r.Commits, r.PerSecond, r.Calls, r.Runs, r.Published, r.Repeated)
	for _, outcome := range slices.Sorted(maps.Keys(r.Tries)) {
		fmt.Fprintf(w, "tries\t%d\t%s\n", r.Tries[outcome], outcome)
	}
	fmt.Fprintf(w, "faults\t%d\t\n", r.FaultsAll)
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		s := r.Recovery[kind]
		fmt.Fprintf(w, "\t%d\t%s, first commit after %.0f ms (median), maximum %.0f ms\n", r.Faults[kind], kind, s.Median, s.Most)
	}
	for _, reason := range r.Unfit {
		fmt.Fprintf(w, "skipped\t\t%s\n", reason)
	}
	fmt.Fprintf(w, "lost in failovers\t%d\tcommits, %d inputs; %d of their events were published\n", r.Lost.Commits, r.Lost.Inputs, r.Lost.Ghosts)
	fmt.Fprintf(w, "drained\t%d\tms after the last fault\n", r.DrainedMS)
	for _, c := range r.Invariants {
		word := "holds"
		if !c.OK {
			word = fmt.Sprintf("VIOLATED %d times", c.Failed)
		}
		fmt.Fprintf(w, "%s\t%d\t%s %s\n", word, c.Checked, c.Name, c.Note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	r.Problems(out)
	if r.Void != "" {
		fmt.Fprintf(out, "void: %s\n", r.Void)
	}
	return nil
}

// Problems writes the first violations of each invariant, one per line.
func (r *Report) Problems(out io.Writer) {
	for _, c := range r.Invariants {
		for _, problem := range c.Problems {
			fmt.Fprintf(out, "%s: %s\n", c.Name, problem)
		}
	}
}

// Row writes a row of a Markdown table: topology, seed, seconds, commits, faults, the longest recovery, the losses, the
// time to drain, whether all invariants hold, server and commit.
func (r *Report) Row(out io.Writer) error {
	longest := 0.0
	for _, s := range r.Recovery {
		longest = max(longest, s.Most)
	}
	topology, holds := r.Topology, "all hold"
	if r.Wait > 0 {
		topology += fmt.Sprintf(", WAIT %d", r.Wait)
	}
	if !r.OK {
		holds = "violated"
	}
	if r.Void != "" {
		holds = "void"
	}
	_, err := fmt.Fprintf(out, "| %s | %d | %.0f s | %d | %d of %d kinds | %.1f s | %d, %d, %d | %.1f s | %s | %s, %s |\n",
		topology, r.Seed, r.Seconds, r.Commits, r.FaultsAll, len(r.Faults), longest/1000, r.Lost.Commits, r.Lost.Inputs, r.Lost.Ghosts,
		float64(r.DrainedMS)/1000, holds, r.Server, r.Commit)
	return err
}
