package commit

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/assert"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replying is a hook that simulates a server with the same reply to every script.
type replying struct{ reply any }

func (replying) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r replying) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if sent, ok := cmd.(call); ok {
			sent.SetVal(r.reply)
		}
		return nil
	}
}

func (r replying) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = r.ProcessHook(nil)(ctx, cmd)
		}
		return nil
	}
}

func newReplying(t *testing.T, reply any) *set {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	client.AddHook(replying{reply})
	t.Cleanup(func() { _ = client.Close() })
	return newSet(client)
}

// commits sends commits of one shard together. It returns their outcomes, and the first error.
func (s *set) commits(ctx context.Context, home shard.Shard, batch []Commit) ([]Outcome, error) {
	sent := make([]*Commit, len(batch))
	for i := range batch {
		batch[i].Shard, sent[i] = home, &batch[i]
	}
	s.Send(ctx, time.Time{}, sent)
	outcomes := make([]Outcome, len(batch))
	for i, c := range sent {
		if c.Err != nil {
			return nil, c.Err
		}
		outcomes[i] = c.Outcome
	}
	return outcomes, nil
}

func TestReplyThatNoScriptGivesIsAnError(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{
		nil, "text", int64(1),
		[]any{},
		[]any{"3"},
		[]any{"x", int64(2), "committed", int64(0)},
		[]any{"1", "committed"},
		[]any{"1", int64(0)},
		[]any{"1", int64(-1), "committed"},
		[]any{"1", int64(3), "committed", int64(0)},
		[]any{"1", int64(1), "nosuch"},
		[]any{"1", int64(1), "committed"},
		[]any{"1", int64(2), "failed", int64(1)},
	} {
		set := newReplying(t, reply)
		home := set.Shard(0)
		if out, err := set.commits(t.Context(), home, make([]Commit, 1)); err == nil {
			t.Errorf("commit %v: %+v", reply, out)
		}
		if _, err := set.Settle(t.Context(), home, shard.Settling{}, make([]shard.Settlement, 3)); err == nil {
			t.Errorf("settle %v", reply)
		}
		if claim, err := set.Claim(t.Context(), home, shard.Claiming{Limit: 1, Lease: time.Second, Attempts: 1}); err == nil {
			t.Errorf("claim %v: %+v", reply, claim)
		}
	}
	set := newReplying(t, []any{"1", "identity", "another"})
	if _, err := set.Claim(t.Context(), set.Shard(0), shard.Claiming{Limit: 1, Lease: time.Second, Attempts: 1}); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("a claim on another's shard: %v", err)
	}
}

func TestReplyOfReadsThatNoScriptGivesIsAnError(t *testing.T) {
	t.Parallel()
	large, value := []any{int64(tooLarge)}, []any{int64(1), "text", "digest", int64(4)}
	for _, reply := range []any{
		nil, "text", []any{}, []any{value, value}, []any{[]any{}}, []any{[]any{int64(1)}}, []any{value[:3]}, []any{value, large},
	} {
		set := newReplying(t, reply)
		if got, err := set.Read(t.Context(), set.Shard(0), nil, []Guard{{Args: []any{"GET", "k"}}}, 100); err == nil {
			t.Errorf("%v: %+v", reply, got)
		}
	}
	for _, reply := range []any{[]any{large}, []any{value}} {
		set := newReplying(t, reply)
		if got, err := set.Read(t.Context(), set.Shard(0), nil, []Guard{{Args: []any{"GET", "k"}}}, 100); err != nil {
			t.Errorf("%v: %+v, %v", reply, got, err)
		}
	}
}

func TestReplyOfADuplicateWithMoreOrFewerElementsIsAnError(t *testing.T) {
	t.Parallel()
	for _, row := range [][]any{
		{"duplicate", int64(1), int64(1)},
		{"replayed", int64(1), int64(1), int64(0), int64(0)},
	} {
		set := newReplying(t, append([]any{"1", int64(len(row))}, row...))
		if out, err := set.commits(t.Context(), set.Shard(0), make([]Commit, 1)); err == nil {
			t.Errorf("%v: %+v", row, out)
		}
	}
}

func TestReplyOfATimerWithMoreOrFewerRowsIsAnError(t *testing.T) {
	t.Parallel()
	set := newReplying(t, []any{"1", "recorded", "more"})
	home := set.Shard(0)
	if what, err := set.SetTimer(t.Context(), home, "record", shard.Timer{}); err == nil {
		t.Errorf("record: %s", what)
	}
	if what, err := set.Revoke(t.Context(), home, "a", nil); err == nil {
		t.Errorf("revoke: %s", what)
	}
	if timers, _, err := set.DueTimers(t.Context(), home, 0, 1); err == nil {
		t.Errorf("due: %v", timers)
	}
}

func TestForeignShardRepliesToAllCallersOfAScript(t *testing.T) {
	t.Parallel()
	set := newReplying(t, []any{"1", int64(2), "identity", "another"})
	outcomes, err := set.commits(t.Context(), set.Shard(0), make([]Commit, 3))
	assert.Must(t, err)
	for i, out := range outcomes {
		if out.State != Identity || out.Text != "another" {
			t.Errorf("transaction %d: %+v", i, out)
		}
	}
}

// elsewhere lists the scripts that other packages run: pipeline.SetNX, internal/rekey, internal/process,
// internal/history, stream and admin.
var elsewhere = []string{
	"release.lua", "drop.lua", "deadletter.lua", "dismiss.lua", "fetch.lua", "hold.lua", "takeover.lua", "putback.lua", "trim.lua",
	"lease.lua", "members.lua", "partition.lua", "dead.lua", "deadimport.lua", "acknowledge.lua", "window.lua", "process.lua", "history.lua",
}

func TestEveryScriptOfTheDirectoryIsBuilt(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../lua/[a-z]*.lua")
	assert.Must(t, err)
	files = slices.DeleteFunc(files, func(name string) bool { return slices.Contains(elsewhere, filepath.Base(name)) })
	shas := maps.Collect(newReplying(t, nil).runner.SHAs())
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		assert.Equal(t, len(shas[name]), 40, "the length of the hash of script %s", name)
		delete(shas, name)
	}
	if len(shas) > 0 {
		t.Errorf("scripts without a file: %v", shas)
	}
}

func TestKindsOfTransactionsHaveDifferentPlansAndAreBounded(t *testing.T) {
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
		return known.of(c, strings).text.(string)
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
		"strict":    of(&Commit{Input: Input{Ack: AckFused, Strict: true}}, false),
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
		if n := len(known.known); n > maxPlans {
			t.Fatalf("%d plans are kept, want %d at most", n, maxPlans)
		}
	}
}

func TestCommitsUseTheResultOfTheProbe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply any
		lacks []string
		sent  string // "": malformed
	}{
		{[]any{"2"}, nil, "2"},
		{[]any{"1"}, nil, "1"},
		{[]any{"1", "HDEL", "SET"}, []string{"HDEL", "SET"}, "1"},
		{nil, nil, ""},
		{"2", nil, ""},
		{[]any{}, nil, ""},
		{[]any{"3"}, nil, ""},
		{[]any{int64(2)}, nil, ""},
		{[]any{"1", int64(1)}, nil, ""},
	} {
		set := newReplying(t, c.reply)
		lacks, restores, err := set.Probe(t.Context(), set.Shard(0), func(error) {})
		if (err == nil) != (c.sent != "") || !slices.Equal(lacks, c.lacks) || restores != (c.sent == "2") {
			t.Errorf("%v: lacks %q, restores %t, %v", c.reply, lacks, restores, err)
		}
		if c.sent != "" && set.stringsOnly.Load() != (c.sent == "1") {
			t.Errorf("after the reply %v, commits assume that the server restores only strings: %t", c.reply, set.stringsOnly.Load())
		}
	}
}
