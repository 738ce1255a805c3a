package verdict

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
	"github.com/luatx/luatx/torture/internal/work"
)

const (
	windows       = 400 // maximum number of checked windows
	windowTimeout = 5 * time.Second
	fewOperations = 3 // a window with fewer operations proves nothing
)

// window identifies a cell: all calls on one branch in one second.
type window struct {
	branch int
	epoch  int64
}

// Linear checks windows chosen by the seed for linearizability. It skips windows from which a failover may have lost
// commits, because a lost commit was visible before.
func Linear(ctx context.Context, e Evidence, client redis.UniversalClient, seed uint64, checks *Checks) error {
	calls, peeks := make(map[window][]*Call), make(map[window][]history.Line)
	for _, c := range e.Story.Calls {
		if c.Cell != 0 {
			w := window{c.Branch, c.Cell}
			calls[w] = append(calls[w], c)
		}
	}
	for _, p := range e.Story.Peeks {
		w := window{p.Branch, p.Cell}
		peeks[w] = append(peeks[w], p)
	}
	var chosen []window
	skipped := 0
	for w, of := range calls {
		switch {
		case len(of)+len(peeks[w]) < fewOperations:
		case e.disturbed(w, of):
			skipped++
		default:
			chosen = append(chosen, w)
		}
	}
	slices.SortFunc(chosen, func(a, b window) int { return int(a.epoch-b.epoch)*len(e.World.Branches) + a.branch - b.branch })
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	total, operations, undecided := len(chosen), 0, 0
	for _, w := range chosen[:min(windows, total)] {
		b := e.World.Branches[w.branch]
		done, err := client.HKeys(ctx, b.Done(w.epoch)).Result()
		if err != nil {
			return err
		}
		ops := operationsOf(calls[w], peeks[w], done)
		operations += len(ops)
		switch porcupine.CheckOperationsTimeout(model, ops, windowTimeout) {
		case porcupine.Illegal:
			checks.Hold(Linearizable, false, "cell %d of %s: %d operations\n%s", w.epoch, b.Name, len(ops), describe(ops))
		case porcupine.Unknown:
			undecided++
		default:
			checks.Hold(Linearizable, true, "")
		}
	}
	checks.Note(Linearizable, "%d operations in windows drawn from %d; %d windows with failovers were skipped, %d checks timed out",
		operations, total, skipped, undecided)
	return nil
}

// disturbed reports whether a failover overlaps a window.
func (e Evidence) disturbed(w window, calls []*Call) bool {
	from, to := w.epoch*int64(ground.CellTime), (w.epoch+1)*int64(ground.CellTime)
	for _, c := range calls {
		for _, try := range c.Tries {
			to = max(to, try.End)
		}
	}
	for _, o := range e.Outages {
		if slices.Contains(o.Branches, w.branch) && from <= o.To.UnixNano() && to >= o.From.UnixNano()-int64(5*time.Second) {
			return true
		}
	}
	return false
}

// asked is the input of an operation of the model, and answered its output.
type asked struct {
	op               string
	from, to, amount int64
}

type answered struct {
	short bool
	value string // empty if unknown
}

// operationsOf converts calls and peeks to operations. An effect that no try reported gets no end time.
func operationsOf(calls []*Call, peeks []history.Line, done []string) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, c := range calls {
		in := asked{c.Op, account(c.From), account(c.To), c.Amount}
		if slices.Contains(done, c.ID) {
			out, end := answered{}, int64(math.MaxInt64)
			if try, acked := c.acked(); acked {
				out.value, end = try.Value, try.End
			}
			ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: in, Output: out, Call: c.Start, Return: end})
			continue
		}
		if try, acked := c.acked(); acked { // reported but not applied, which no order of the other operations explains
			ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: asked{op: "lost " + c.ID}, Output: answered{}, Call: try.Start, Return: try.End})
		}
		for _, try := range c.Tries {
			if try.Outcome == history.Short {
				ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: in, Output: answered{true, try.Value}, Call: try.Start, Return: try.End})
			}
		}
	}
	for _, p := range peeks {
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: asked{op: p.Op}, Output: answered{value: p.Value}, Call: p.Start, Return: p.End})
	}
	return ops
}

func account(name string) int64 { return int64(slices.Index(work.CellAccounts, name)) }

// cell is the state of the model.
type cell [3]int64

func (c cell) String() string { return fmt.Sprintf("%d,%d,%d", c[0], c[1], c[2]) }

var model = porcupine.Model{
	Init: func() any { return cell{} },
	Step: func(state, input, output any) (bool, any) {
		return step(state.(cell), input.(asked), output.(answered))
	},
}

// step reports whether an operation can have that output in a state, and returns the next state.
func step(held cell, in asked, out answered) (bool, cell) {
	is := func(n int64) bool { return out.value == "" || out.value == strconv.FormatInt(n, 10) }
	next := held
	switch in.op {
	case history.Peek:
		return out.value == held.String(), held
	case history.Deposit:
		next[in.to] += in.amount
		return is(next[in.to]), next
	case history.CellMove, history.CellCall:
		if out.short {
			return held[in.from] < in.amount && is(held[in.from]), held
		}
		next[in.from] -= in.amount
		next[in.to] += in.amount
		left := next[in.to] // the reply of a transfer by guarded reads
		if in.op == history.CellCall {
			left = next[in.from]
		}
		return held[in.from] >= in.amount && is(left), next
	default:
		return false, held
	}
}

// describe lists operations for debugging.
func describe(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var lines []string
	for _, op := range ops {
		lines = append(lines, fmt.Sprintf("  %d to %d µs: %+v returned %+v", (op.Call-ops[0].Call)/1000, (op.Return-ops[0].Call)/1000, op.Input, op.Output))
	}
	return strings.Join(lines, "\n")
}
