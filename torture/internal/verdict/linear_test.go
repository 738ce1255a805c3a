package verdict

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/luatx/luatx/torture/internal/history"
)

func TestModelOfACellAllowsOnlyHistoriesThatCanHaveHappened(t *testing.T) {
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
		"one after the other":           {[]porcupine.Operation{deposit(0, 1, "5"), move(history.CellMove, 2, 3, false, "3"), peek(4, 5, "2,3,0")}, true},
		"a peek into the past":          {[]porcupine.Operation{deposit(0, 1, "5"), peek(2, 3, "0,0,0")}, false},
		"a peek meanwhile":              {[]porcupine.Operation{deposit(0, 5, "5"), peek(2, 3, "0,0,0")}, true},
		"half a move":                   {[]porcupine.Operation{deposit(0, 1, "5"), move(history.CellCall, 2, 9, false, "2"), peek(3, 4, "2,0,0")}, false},
		"an update that was lost":       {[]porcupine.Operation{deposit(0, 1, "5"), deposit(2, 3, "5")}, false},
		"a stale read decided":          {[]porcupine.Operation{deposit(0, 1, "5"), move(history.CellMove, 2, 3, true, "0")}, false},
		"funds were short":              {[]porcupine.Operation{move(history.CellMove, 0, 1, true, "0"), deposit(2, 3, "5")}, true},
		"funds were not short":          {[]porcupine.Operation{deposit(0, 1, "5"), move(history.CellCall, 2, 3, true, "")}, false},
		"overdrawn":                     {[]porcupine.Operation{move(history.CellCall, 0, 1, false, "")}, false},
		"nobody was told, it is in":     {[]porcupine.Operation{deposit(0, math.MaxInt64, ""), peek(1, 2, "0,0,0"), peek(3, 4, "5,0,0")}, true},
		"in, and out again":             {[]porcupine.Operation{deposit(0, math.MaxInt64, ""), peek(1, 2, "5,0,0"), peek(3, 4, "0,0,0")}, false},
		"the replies of both are known": {[]porcupine.Operation{deposit(0, 9, "10"), deposit(0, 9, "5")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := porcupine.CheckOperations(model, c.ops); got != c.want {
				t.Errorf("linearizable: %v\n%s", got, describe(c.ops))
			}
		})
	}
}

// TestOperationsOfCalls checks that an effect which no try reported has no end, that a reported effect which is missing has
// no valid order, and that a call with insufficient funds is a read.
func TestOperationsOfCalls(t *testing.T) {
	t.Parallel()
	call := func(id string, tries ...history.Line) *Call {
		return &Call{Line: history.Line{ID: id, Op: history.Deposit, From: "y", To: "x", Amount: 5, Start: 1}, Tries: tries}
	}
	told := func(outcome history.Outcome, value string) history.Line {
		return history.Line{Outcome: outcome, Value: value, Start: 2, End: 3}
	}
	done := []string{"acked", "unknown", "killed"}
	for _, c := range []struct {
		call *Call
		want []porcupine.Operation
	}{
		{call("acked", told(history.Unknown, ""), told(history.Replayed, "5")), []porcupine.Operation{{Output: answered{value: "5"}, Call: 1, Return: 3}}},
		{call("unknown", told(history.Unknown, "")), []porcupine.Operation{{Output: answered{}, Call: 1, Return: math.MaxInt64}}},
		{call("killed"), []porcupine.Operation{{Output: answered{}, Call: 1, Return: math.MaxInt64}}},
		{call("refused", told(history.Nothing, "")), nil},
		{call("short", told(history.Short, "2")), []porcupine.Operation{{Output: answered{true, "2"}, Call: 2, Return: 3}}},
		{call("lost", told(history.Committed, "5")), []porcupine.Operation{{Output: answered{}, Call: 2, Return: 3}}},
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
	if porcupine.CheckOperations(model, operationsOf([]*Call{call("lost", told(history.Committed, "5"))}, nil, nil)) {
		t.Error("a commit that is gone was taken for linearizable")
	}
}
