package verdict

import (
	"slices"
	"strconv"
	"strings"
)

// Sample is the offset of a branch's position at a time, in nanoseconds.
type Sample struct {
	Branch int
	At     int64
	Offset string
}

// steps checks that the steps of each branch were applied once and in order, that each step that fails permanently is a
// dead letter once, and that no position went back.
func (j *judge) steps() {
	for i := range j.World.Branches {
		h := &j.World.Branches[i]
		var applied, dead []string
		for _, id := range h.Steps {
			if h.Stumbling[id] {
				dead = append(dead, id)
			} else {
				applied = append(applied, id)
			}
		}
		j.sequence(SteppedOnce, h, applied, h.Stepped)
		j.sequence(StumbledOnce, h, dead, h.Stumbled)
	}
	last := map[int]Sample{}
	for _, s := range j.Samples {
		before := last[s.Branch]
		back := s.Offset < before.Offset
		j.Hold(NeverBack, !back || j.excusedBetween(s.Branch, before.At, s.At), "the position of %s went from %s to %s", j.World.Branches[s.Branch].Name, before.Offset, s.Offset)
		last[s.Branch] = s
	}
}

// sequence checks that got contains the wanted steps in order. A step may be missing in the stream, because a failover can
// remove it after a consumer has read it.
func (j *judge) sequence(invariant string, h *Holding, want, got []string) {
	for len(want) > 0 || len(got) > 0 {
		switch {
		case len(want) > 0 && len(got) > 0 && want[0] == got[0]:
			j.Hold(invariant, true, "")
			want, got = want[1:], got[1:]
		case len(got) > 0 && !slices.Contains(h.Steps, got[0]) && j.excused(h.N, stepTime(got[0])):
			j.losses.Inputs++
			got = got[1:]
		default:
			j.Hold(invariant, false, "%s, after %d steps: step %s, want %s", h.Name, len(h.Steps), first(got), first(want))
			return
		}
	}
}

// excusedBetween reports whether a failover may have removed data that was there between two times.
func (j *judge) excusedBetween(branch int, from, to int64) bool {
	for _, o := range j.Outages {
		if o.Meets(branch, from, to) {
			return true
		}
	}
	return false
}

// stepTime returns when a step was written, in nanoseconds, from its id.
func stepTime(id string) int64 {
	text, _, _ := strings.Cut(id, "-")
	ms, _ := strconv.ParseInt(text, 10, 64) // Redis generated the id
	return ms * 1e6
}

func first(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	return ids[0]
}
