package verdict

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/luatx/luatx/torture/internal/history"
)

func TestModelAllowsOnlyLinearizableHistories(t *testing.T) {
	t.Parallel()
	deposit := func(from, to int64, value string) porcupine.Operation {
		return porcupine.Operation{Input: asked{history.Deposit, 1, 0, 5}, Output: answered{value: value}, Call: from, Return: to}
	}
	move := func(op string, from, to int64, short bool, value string) porcupine.Operation {
		return porcupine.Operation{Input: asked{op, 0, 1, 3}, Output: answered{short, value}, Call: from, Return: to}
	}
	peek := func(from, to int64, value string) porcupine.Operation {
		return porcupine.Operation{Input: asked{op: history.Peek}, Output: answered{value: value}, Call: from, Return: to}
	}
	for name, c := range map[string]struct {
		ops  []porcupine.Operation
		want bool
	}{
		"one after the other":            {[]porcupine.Operation{deposit(0, 1, "5"), move(history.CellMove, 2, 3, false, "3"), peek(4, 5, "2,3,0")}, true},
		"peek misses a deposit":          {[]porcupine.Operation{deposit(0, 1, "5"), peek(2, 3, "0,0,0")}, false},
		"peek during a deposit":          {[]porcupine.Operation{deposit(0, 5, "5"), peek(2, 3, "0,0,0")}, true},
		"peek sees half a move":          {[]porcupine.Operation{deposit(0, 1, "5"), move(history.CellCall, 2, 9, false, "2"), peek(3, 4, "2,0,0")}, false},
		"lost update":                    {[]porcupine.Operation{deposit(0, 1, "5"), deposit(2, 3, "5")}, false},
		"decision from a stale read":     {[]porcupine.Operation{deposit(0, 1, "5"), move(history.CellMove, 2, 3, true, "0")}, false},
		"insufficient funds":             {[]porcupine.Operation{move(history.CellMove, 0, 1, true, "0"), deposit(2, 3, "5")}, true},
		"funds suffice, but call failed": {[]porcupine.Operation{deposit(0, 1, "5"), move(history.CellCall, 2, 3, true, "")}, false},
		"overdrawn":                      {[]porcupine.Operation{move(history.CellCall, 0, 1, false, "")}, false},
		"unknown outcome, applied":       {[]porcupine.Operation{deposit(0, math.MaxInt64, ""), peek(1, 2, "0,0,0"), peek(3, 4, "5,0,0")}, true},
		"applied, then gone":             {[]porcupine.Operation{deposit(0, math.MaxInt64, ""), peek(1, 2, "5,0,0"), peek(3, 4, "0,0,0")}, false},
		"two concurrent deposits":        {[]porcupine.Operation{deposit(0, 9, "10"), deposit(0, 9, "5")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := porcupine.CheckOperations(model, c.ops); got != c.want {
				t.Errorf("linearizable: %v\n%s", got, describe(c.ops))
			}
		})
	}
}

// TestOperationsOfConvertsCallsByOutcome checks that an effect that no try reported has no end, that a reported effect that is
// missing has no valid order, and that a call with insufficient funds is a read.
func TestOperationsOfConvertsCallsByOutcome(t *testing.T) {
	t.Parallel()
	call := func(id string, tries ...history.Line) *Call {
		return &Call{Line: history.Line{ID: id, Op: history.Deposit, From: "y", To: "x", Amount: 5, Start: 1}, Tries: tries}
	}
	try := func(outcome history.Outcome, value string) history.Line {
		return history.Line{Outcome: outcome, Value: value, Start: 2, End: 3}
	}
	done := []string{"acked", "unknown", "killed"}
	for _, c := range []struct {
		call *Call
		want []porcupine.Operation
	}{
		{call("acked", try(history.Unknown, ""), try(history.Replayed, "5")), []porcupine.Operation{{Output: answered{value: "5"}, Call: 1, Return: 3}}},
		{call("unknown", try(history.Unknown, "")), []porcupine.Operation{{Output: answered{}, Call: 1, Return: math.MaxInt64}}},
		{call("killed"), []porcupine.Operation{{Output: answered{}, Call: 1, Return: math.MaxInt64}}},
		{call("refused", try(history.Nothing, "")), nil},
		{call("short", try(history.Short, "2")), []porcupine.Operation{{Output: answered{true, "2"}, Call: 2, Return: 3}}},
		{call("lost", try(history.Committed, "5")), []porcupine.Operation{{Output: answered{}, Call: 2, Return: 3}}},
	} {
		got := operationsOf([]*Call{c.call}, nil, done)
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v", c.call.ID, got)
			continue
		}
		for i := range got {
			if got[i].Output != c.want[i].Output || got[i].Call != c.want[i].Call || got[i].Return != c.want[i].Return {
				t.Errorf("%s: %+v, want %+v", c.call.ID, got[i], c.want[i])
			}
		}
	}
	if porcupine.CheckOperations(model, operationsOf([]*Call{call("lost", try(history.Committed, "5"))}, nil, nil)) {
		t.Error("a lost commit passed as linearizable")
	}
}
