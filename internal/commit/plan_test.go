package commit

import (
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// TestPlans holds that what differs in kind has a plan of its own, and that no number
// of kinds fills the memory.
func TestPlans(t *testing.T) {
	t.Parallel()
	var known plans
	kind := func(commands int) *Commit {
		c := &Commit{}
		for range commands {
			c.Commands = append(c.Commands, Command{"k03", []any{"SET", "k", "v"}})
		}
		return c
	}
	of := func(c *Commit, strings bool) string {
		c.args = c.arguments()
		return known.of(c, strings).(string)
	}
	seen := map[string]bool{}
	for name, plan := range map[string]string{
		"plain":     of(kind(1), false),
		"strings":   of(kind(1), true),
		"two":       of(kind(2), false),
		"replies":   of(&Commit{Keep: true}, false),
		"delayed":   of(&Commit{Delay: time.Hour}, false),
		"fenced":    of(&Commit{Input: Input{Ack: AckFence}}, false),
		"fused":     of(&Commit{Input: Input{Ack: AckFused}}, false),
		"event":     of(&Commit{Events: []shard.Event{{ID: "e"}}}, false),
		"ordered":   of(&Commit{Events: []shard.Event{{ID: "e", Key: "k"}}}, false),
		"scheduled": of(&Commit{Events: []shard.Event{{ID: "e", At: time.Unix(1, 0)}, {ID: "f"}}}, false),
		"guarded":   of(&Commit{Guards: []Guard{{Order: 'o', Args: []any{"GET", "k"}}}}, false),
		"class":     of(&Commit{Commands: []Command{{"i03", []any{"SET", "k", "v"}}}}, false),
	} {
		if seen[plan] {
			t.Errorf("%s: has the plan of another kind", name)
		}
		seen[plan] = true
	}
	for i := range 2 * maxPlans {
		c := kind(i)
		if plan := of(c, false); len(plan) != 15+4*i || strings.Count(plan, "k\x00\x00\x03") != i {
			t.Fatalf("the plan of %d commands is %q", i, plan)
		}
	}
	if n := len(*known.known.Load()); n > maxPlans {
		t.Errorf("%d plans are kept, want %d at most", n, maxPlans)
	}
}
