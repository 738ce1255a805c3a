package ground_test

import (
	"testing"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/torture/internal/ground"
)

func TestBranchesShareTheirSlot(t *testing.T) {
	t.Parallel()
	branches, err := ground.Plan{Namespace: "torture-x"}.Branches()
	redistest.Must(t, err)
	slots, names := map[int]bool{}, map[string]bool{}
	for i, b := range branches {
		slots[b.Slot], names[b.Name] = true, true
		tag, err := ground.Plan{Namespace: "torture-x"}.Space().Tag(b.Name)
		if b.N != i || err != nil || tag != b.Tag {
			t.Errorf("%+v, %q, %v", b, tag, err)
		}
		for _, key := range []string{b.Balances, b.Effects, b.Orders, b.Ticks, b.Signals, b.Signalled, b.Cell(5), b.Done(5), b.Void} {
			if slot.Of(key) != b.Slot {
				t.Errorf("%s is in slot %d, but its branch is in slot %d", key, slot.Of(key), b.Slot)
			}
		}
	}
	if len(slots) != len(branches) || len(names) != len(branches) || len(branches) == 0 {
		t.Errorf("%d branches, %d slots, %d names", len(branches), len(slots), len(names))
	}
}

func TestEffectsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, e := range []ground.Effect{
		{Kind: ground.Move, From: "a1", To: "a2", Amount: 7, Event: "e-1", Lane: "a1", N: 3},
		{Kind: ground.Send, From: "a1", To: "branch-3/a2", Amount: 7, Event: "e-1", Lane: ground.NoLane},
	} {
		if got, err := ground.ParseEffect(e.String()); err != nil || got != e {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, text := range []string{"", "doomed", "move a b x e l 1", "move a b 1 e l x", "move a b 1 e l 1 1"} {
		if got, err := ground.ParseEffect(text); err == nil {
			t.Errorf("%q was parsed as %+v, want an error", text, got)
		}
	}
}
