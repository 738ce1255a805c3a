package repair_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/repair"
)

func TestRepairedInboxKeepsItsStartAndItsTombstoneHorizon(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		const horizon = "4102444800000"
		for name, c := range map[string]struct {
			a, b *generation
			of   string // the generation with the horizon
			want string
		}{
			"newer one becomes the older one": {&generation{2*retention + time.Hour, false}, nil, "inbox:a", "stale inbox:a"},
			"older one is dropped":            {&generation{retention + time.Hour, true}, &generation{3 * retention, false}, "inbox:a", "stale inbox:b"},
			"start in the future":             {&generation{-time.Hour, false}, nil, "inbox:a", "value inbox:a/id"},
			"older one is lost":               {&generation{time.Hour, true}, nil, "inbox:a", "value inbox:a/id"},
			"older one is not linked":         {&generation{time.Hour, false}, &generation{retention, false}, "inbox:a", "unlinked inbox:b"},
			"newer one is lost":               {nil, &generation{time.Hour, false}, "inbox:b", "unlinked inbox:b"},
			"newer one began without it":      {&generation{time.Hour, false}, &generation{retention, false}, "inbox:b", "unlinked inbox:b"},
		} {
			s, start := newShop(t, client), ""
			for key, g := range map[string]*generation{"inbox:a": c.a, "inbox:b": c.b} {
				if g == nil {
					continue
				}
				meta := s.meta(*g)
				if g == c.a && g.age > 0 && g.age < 2*retention {
					start = meta[13:26]
				}
				if key == c.of {
					meta = meta[:27] + horizon + meta[27+len(horizon):]
				}
				s.do(t, "HSET", s.key(key), "id", meta, "tombstone", "1")
			}
			if got := named(t, newWorker(t, s.tr, repair.Config{}).Fix(redistest.Soon(t))); len(got) != 1 || got[0] != c.want {
				t.Errorf("%s: fixed %q", name, got)
			}
			meta := client.HGet(redistest.Soon(t), s.key("inbox:a"), "id").Val()
			if len(meta) < 40 || meta[27:40] != horizon {
				t.Errorf("%s: %q does not keep the horizon", name, meta)
			} else if start != "" && meta[13:26] != start {
				t.Errorf("%s: %q does not keep the start %s", name, meta, start)
			}
		}
	})
}

// inboxInvariants are invariants of the generations of a furnished shard.
var inboxInvariants = []invariant{
	{
		"identity of old marks that are gone",
		[][]any{{"DEL", "@inbox:a"}, {"HSET", "@inbox:a", "id", generation{3 * retention, false}}},
		[]string{"stale inbox:a"},
	},
	{
		"identity without a time, whose older generation is lost",
		[][]any{{"DEL", "@inbox:a"}, {"HSET", "@inbox:a", "id", generation{never, true}}},
		[]string{"value inbox:a/id"},
	},
	{
		"older generation past the retention",
		[][]any{{"HSET", "@inbox:a", "id", generation{retention + time.Hour, true}}, {"HSET", "@inbox:b", "mark", "1"}},
		[]string{"stale inbox:b"},
	},
	{"older generation of nobody", [][]any{{"HSET", "@inbox:b", "mark", "1"}}, []string{"unlinked inbox:b"}},
	{
		"replies past the retention beside another type",
		[][]any{{"HSET", "@results", "start", ago(2*retention + time.Hour)}, {"SET", "@results:b", "v"}},
		[]string{"stale results", "type results:b"},
	},
}

func TestGenerationsEndAtTheMillisecondOfTheirRetention(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	now := time.Now().Truncate(time.Millisecond)
	server.SetTime(now)
	for _, c := range []struct {
		name  string
		age   time.Duration
		older bool
		want  string
	}{
		{"inbox:a", 0, false, "[]"},
		{"inbox:a", -time.Millisecond, false, "[value inbox:a/id]"},
		{"inbox:a", 2*retention - time.Millisecond, false, "[]"},
		{"inbox:a", 2 * retention, false, "[stale inbox:a]"},
		{"inbox:a", retention - time.Millisecond, true, "[]"},
		{"inbox:a", retention, true, "[stale inbox:b]"},
		{"results", 0, false, "[]"},
		{"results", -time.Millisecond, false, "[value results/start]"},
		{"results", 2*retention - time.Millisecond, false, "[]"},
		{"results", 2 * retention, false, "[stale results]"},
	} {
		s, start := newShop(t, client), fmt.Sprintf("%013d", now.Add(-c.age).UnixMilli())
		meta := s.meta(generation{0, c.older})
		meta = meta[:13] + start + meta[26:]
		s.do(t, "HSET", s.key(c.name), "id", meta, "start", start)
		if c.older {
			s.do(t, "HSET", s.key("inbox:b"), "id", meta, "mark", "1")
		}
		if got := fmt.Sprint(named(t, newWorker(t, s.tr, repair.Config{}).Check(redistest.Soon(t)))); got != c.want {
			t.Errorf("%s that began %v ago: %s, want %s", c.name, c.age, got, c.want)
		}
	}
}

// TestInboxWithAStartAndNoMarkIsSound checks an inbox as transactions with positions leave it.
func TestInboxWithAStartAndNoMarkIsSound(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		s.damage(t, []any{"HSET", "@inbox:a", "id", generation{time.Hour, false}})
		if got := named(t, newWorker(t, s.tr, repair.Config{}).Check(redistest.Soon(t))); len(got) > 0 {
			t.Errorf("found %q", got)
		}
	})
}

func TestFindingOfAnInvalidTimeHasItAsItsDetail(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		meta := "0000000000000soon         00000000000000" + s.meta(generation{})[40:]
		s.do(t, "HSET", s.key("inbox:a"), "id", meta)
		s.do(t, "HSET", s.key("results"), "start", "soon")
		want := map[string]string{"inbox:a": meta, "results": "soon"}
		for f, err := range newWorker(t, s.tr, repair.Config{}).Check(redistest.Soon(t)) {
			redistest.Must(t, err)
			if f.Kind != repair.BadValue || f.Detail != want[f.Key] {
				t.Errorf("%s: the detail is %q, want %q", f, f.Detail, want[f.Key])
			}
			delete(want, f.Key)
		}
		if len(want) > 0 {
			t.Errorf("not found: %v", want)
		}
	})
}
