package script

import (
	"strings"
	"testing"
	"time"
)

// TestPlans holds that what differs in kind has a plan of its own, and that no number
// of kinds fills the memory.
func TestPlans(t *testing.T) {
	t.Parallel()
	var known plans
	kind := func(commands int) *Tx {
		tx := &Tx{}
		for range commands {
			tx.Commands = append(tx.Commands, Command{"k03", []any{"SET", "k", "v"}})
		}
		return tx
	}
	of := func(tx *Tx, strings bool) string { return known.of(tx, tx.arguments(), strings).(string) }
	seen := map[string]bool{}
	for name, plan := range map[string]string{
		"plain":     of(kind(1), false),
		"strings":   of(kind(1), true),
		"two":       of(kind(2), false),
		"replies":   of(&Tx{Keep: true}, false),
		"delayed":   of(&Tx{Delay: time.Hour}, false),
		"fenced":    of(&Tx{Input: Input{Ack: AckFence}}, false),
		"fused":     of(&Tx{Input: Input{Ack: AckFused}}, false),
		"event":     of(&Tx{Events: []Event{{ID: "e"}}}, false),
		"ordered":   of(&Tx{Events: []Event{{ID: "e", Key: "k"}}}, false),
		"scheduled": of(&Tx{Events: []Event{{ID: "e", At: time.Unix(1, 0)}, {ID: "f"}}}, false),
		"guarded":   of(&Tx{Guards: []Guard{{Order: 'o', Args: []any{"GET", "k"}}}}, false),
		"class":     of(&Tx{Commands: []Command{{"i03", []any{"SET", "k", "v"}}}}, false),
	} {
		if seen[plan] {
			t.Errorf("%s: has the plan of another kind", name)
		}
		seen[plan] = true
	}
	for i := range 2 * maxPlans {
		tx := kind(i)
		if plan := of(tx, false); len(plan) != 15+4*i || strings.Count(plan, "k\x00\x00\x03") != i {
			t.Fatalf("the plan of %d commands is %q", i, plan)
		}
	}
	if n := len(*known.known.Load()); n > maxPlans {
		t.Errorf("%d plans are kept, want %d at most", n, maxPlans)
	}
}
