package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/luatx/luatx/torture/internal/nemesis"
	"github.com/luatx/luatx/torture/internal/pulse"
	"github.com/luatx/luatx/torture/internal/report"
)

// report returns the report of the run.
func (r *run) report() *report.Report {
	out := &report.Report{
		Seed: r.Seed, Replay: r.replay(), Topology: r.Topology, Wait: r.Wait, Server: r.site.Version(), Commit: revision(), Go: runtime.Version(),
		Began: r.began.UTC().Format(time.RFC3339), Seconds: r.ended.Sub(r.began).Seconds(),
		OK: r.checks.OK(), Calls: len(r.story.Calls), Tries: map[string]int{}, Runs: r.story.Runs,
		Published: len(r.world.Published), Invariants: r.checks.List(), Lost: r.losses, DrainedMS: r.drained.Milliseconds(),
		Faults: map[string]int{}, Unfit: r.unfit, Timeline: r.pulse.Beats(), EveryMS: pulse.Every.Milliseconds(),
	}
	for _, c := range r.story.Calls {
		for _, try := range c.Tries {
			out.Tries[string(try.Outcome)]++
			if c.Cell != 0 && try.Outcome == "committed" {
				out.Commits++
			}
		}
	}
	seen := make(map[string]bool, len(r.world.Published))
	for _, p := range r.world.Published {
		seen[p.ID] = true
	}
	out.Repeated = len(r.world.Published) - len(seen)
	for _, h := range r.world.Branches {
		out.Commits += len(h.Effects) + len(h.Ticked) + len(h.Signalled)
	}
	out.PerSecond = float64(out.Commits) / out.Seconds
	for _, f := range r.nemeses.Faults {
		out.Events = append(out.Events, r.event(f))
		if f.Err == "" {
			out.Faults[f.Kind]++
			out.FaultsAll++
		}
	}
	slices.SortFunc(out.Events, func(a, b report.Event) int { return int(a.FromMS - b.FromMS) })
	out.Recovery = report.Spreads(out.Events)
	if out.PerSecond < r.Floor {
		out.Void = fmt.Sprintf("%.0f commits per second are fewer than the required %.0f", out.PerSecond, r.Floor)
	}
	return out
}

func (r *run) event(f nemesis.Fault) report.Event {
	return report.Event{
		Kind: f.Kind, Target: f.Target, FromMS: f.From.Sub(r.began).Milliseconds(), ToMS: f.To.Sub(r.began).Milliseconds(),
		RecoveryMS: report.Milliseconds(f.Recovery), Err: f.Err,
	}
}

// replay returns the command that repeats the schedule.
func (r *run) replay() string {
	words := []string{"go run .", "--for", r.For.String(), "--seed", fmt.Sprint(r.Seed), "--topology", r.Topology}
	if r.Wait > 0 {
		words = append(words, "--wait", fmt.Sprint(r.Wait))
	}
	if len(r.Nemeses) > 0 {
		words = append(words, "--nemeses", strings.Join(r.Nemeses, ","))
	}
	if r.NoClock {
		words = append(words, "--no-clock")
	}
	if r.NoDisk {
		words = append(words, "--no-disk")
	}
	return strings.Join(append(words, "--rate", fmt.Sprint(r.Rate)), " ")
}

// revision returns the commit that was built, according to git.
func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=10").Output() //nolint:noctx // it takes a moment
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
