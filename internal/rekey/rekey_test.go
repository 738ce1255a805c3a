package rekey_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/rekey"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// data are keys of every type under old names, with their new names.
type data struct {
	client redis.UniversalClient
	lead   string
	cfg    rekey.Config
	names  map[string]string // new names by old ones
}

// fill writes n accounts with keys of every type, some with an expiry time.
func fill(t testing.TB, client redis.UniversalClient, n int) data {
	t.Helper()
	ctx, lead := t.Context(), redistest.Tag(t)
	m, err := rekey.ParseMap(lead+":{id}:{part}", lead, "{part}")
	redistest.Must(t, err)
	d := data{client, lead, rekey.Config{Pattern: lead + ":*", Map: m, Keyspace: luatx.Partitions(16), Apply: true}, map[string]string{}}
	pipe := client.Pipeline()
	for i := range n {
		key := func(part string) string {
			old := fmt.Sprintf("%s:%d:%s", lead, i, part)
			name, err := d.cfg.Keyspace.Key(fmt.Sprint(i), lead, part)
			redistest.Must(t, err)
			d.names[old] = name
			return old
		}
		pipe.Set(ctx, key("text"), fmt.Sprint("value", i), time.Duration(i%2)*time.Hour)
		small, big := map[string]any{}, map[string]any{}
		for f := range 300 {
			big[fmt.Sprint("field", f)] = i * f
		}
		small["a"] = i
		pipe.HSet(ctx, key("small"), small)
		pipe.HSet(ctx, key("big"), big)
		pipe.Expire(ctx, key("big"), 2*time.Hour)
		pipe.RPush(ctx, key("list"), i, "b", "a", "b")
		for f := range 300 {
			pipe.SAdd(ctx, key("set"), fmt.Sprint("member", f))
			pipe.ZAdd(ctx, key("zset"), redis.Z{Score: float64(f%7) / 3, Member: f})
		}
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: key("stream"), Values: []any{"f", i}})
		pipe.XGroupCreate(ctx, key("stream"), "g", "0")
		pipe.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{key("stream"), ">"}, Block: -1})
	}
	_, err = pipe.Exec(ctx)
	redistest.Must(t, err)
	return d
}

func (d data) dump(t testing.TB) redistest.State {
	t.Helper()
	state, err := redistest.Dump(t.Context(), d.client, d.lead+":*", "*:"+d.lead+":*")
	redistest.Must(t, err)
	return state
}

// renamed returns the state that the run must produce from a state.
func (d data) renamed(t testing.TB, state redistest.State) redistest.State {
	t.Helper()
	want := redistest.State{Keys: map[string]redistest.Entry{}}
	for key, entry := range state.Keys {
		if name, ok := d.names[key]; ok {
			key = name
		}
		want.Keys[key] = entry
	}
	return want
}

// run returns the number of keys with each outcome, and the steps that matter.
func (d data) run(t testing.TB, cfg rekey.Config) (counts [rekey.Outcomes]int, steps map[string]rekey.Step) {
	t.Helper()
	steps = map[string]rekey.Step{}
	redistest.Must(t, rekey.Run(redistest.Soon(t), d.client, cfg, func(s rekey.Step) {
		counts[s.Outcome]++
		steps[s.Old] = s
	}))
	return counts, steps
}

// wantRenamed checks that every key has its new name and is otherwise unchanged. A copy may lose a few milliseconds of
// its expiry time.
func (d data) wantRenamed(t testing.TB, before redistest.State) {
	t.Helper()
	want, got := d.renamed(t, before), d.dump(t)
	for key, entry := range got.Keys {
		was := want.Keys[key]
		if off := entry.ExpireAt - was.ExpireAt; was.ExpireAt > 0 && entry.ExpireAt > 0 && max(off, -off) < 2000 {
			was.ExpireAt = entry.ExpireAt
			want.Keys[key] = was
		}
	}
	if diff := redistest.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDryRunChangesNothingAndApplyRenamesEveryType(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		d := fill(t, client, 12)
		n := len(d.names)
		before := d.dump(t)
		dry := d.cfg
		dry.Apply = false
		counts, steps := d.run(t, dry)
		if counts[rekey.Renamed] != n || len(steps) != n {
			t.Errorf("dry run: %v, want %d to be renamed", counts, n)
		}
		for old, s := range steps {
			assert.Equal(t, s.New, d.names[old], "the new name of %s", old)
		}
		if diff := redistest.Diff(before, d.dump(t)); diff != "" {
			t.Fatalf("the dry run has changed something:\n%s", diff)
		}

		if counts, _ := d.run(t, d.cfg); counts[rekey.Renamed] != n || counts[rekey.Failed]+counts[rekey.Taken]+counts[rekey.Unfit] != 0 {
			t.Errorf("applied: %v, want %d renamed", counts, n)
		}
		d.wantRenamed(t, before)
		if counts, _ := d.run(t, d.cfg); counts != [rekey.Outcomes]int{} {
			t.Errorf("again: %v", counts)
		}
		d.cfg.Pattern = "*:" + d.lead + ":*"
		if counts, _ := d.run(t, d.cfg); counts[rekey.Named] != n {
			t.Errorf("of the new names: %v", counts)
		}
	})
}

func TestOneRunMovesAllKeysToAnotherKeyspace(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, c := range map[string]struct{ from, to luatx.Keyspace }{
			"partitions to own tags":       {luatx.Partitions(16), luatx.OwnTags()},
			"own tags to partitions":       {luatx.OwnTags(), luatx.Partitions(16)},
			"another number of partitions": {luatx.Partitions(16), luatx.Partitions(32)},
		} {
			t.Run(name, func(t *testing.T) {
				lead := redistest.Tag(t)
				from, to := c.from.WithPrefix(lead), c.to.WithPrefix(lead)
				d := data{client, lead, rekey.Config{Pattern: lead + ":*", Map: rekey.From(from), Keyspace: to, Apply: true}, map[string]string{}}
				for i := range 100 {
					words := []string{fmt.Sprint("order:", i), "50%"}
					old, err := from.Key(words[0], words[1:]...)
					redistest.Must(t, err)
					d.names[old], err = to.Key(words[0], words[1:]...)
					redistest.Must(t, err)
					redistest.Must(t, client.Set(t.Context(), old, i, 0).Err())
				}
				before := d.dump(t)
				for apply, label := range []string{"the preview", "the run"} {
					d.cfg.Apply = apply == 1
					counts, steps := d.run(t, d.cfg)
					// The scan of the run may return a renamed key again.
					if counts[rekey.Renamed] != 100 || counts[rekey.Unfit]+counts[rekey.Taken]+counts[rekey.Failed] != 0 {
						t.Errorf("%s: %v", label, counts)
					}
					for old, want := range d.names {
						assert.Equal(t, steps[old].New, want, "%s: the new name of %s", label, old)
					}
				}
				d.wantRenamed(t, before)
				if counts, _ := d.run(t, d.cfg); counts != [rekey.Outcomes]int{rekey.Named: 100} {
					t.Errorf("again: %v", counts)
				}
			})
		}
	})
}

func TestKeysOfShardsAreNeverRenamed(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		lead := redistest.Tag(t)
		from := luatx.Partitions(16).WithPrefix(lead)
		tr, err := luatx.New(client, luatx.Config{Namespace: lead, Keyspace: from})
		redistest.Must(t, err)
		for _, key := range []string{"inbox", "sent"} { // the shard in which a key of the shard is named like one of an aggregate
			tag, err := from.Tag(key)
			redistest.Must(t, err)
			aggregate := ""
			for i := 0; aggregate == ""; i++ {
				if other, err := from.Tag(fmt.Sprint(i)); err == nil && other == tag {
					aggregate = fmt.Sprint(i)
				}
			}
			_, err = tr.Transact(redistest.Soon(t), aggregate, func(tx *luatx.Tx) error {
				return tx.Emit(luatx.Event{ID: key, Body: []byte(`{"specversion":"1.0","id":"` + key + `","source":"/s","type":"t"}`)})
			}, luatx.WithID("m"))
			redistest.Must(t, err)
		}
		inbox, err := from.Key("inbox", "a")
		redistest.Must(t, err)
		assert.Equal(t, client.Exists(t.Context(), inbox).Val(), 1, "the inbox %s", inbox)
		free := lead + ":{free}:sent" // no shard has this tag
		redistest.Must(t, client.Set(t.Context(), free, 1, 0).Err())
		d := data{client, lead, rekey.Config{Pattern: lead + ":*", Map: rekey.From(from), Keyspace: luatx.Partitions(32).WithPrefix(lead), Apply: true}, nil}
		for _, own := range []bool{false, true} {
			before := d.dump(t)
			if own {
				d.cfg.Map = rekey.From(luatx.OwnTags().WithPrefix(lead))
				d.names = map[string]string{}
				d.names[free], err = d.cfg.Keyspace.Key("free", "sent")
				redistest.Must(t, err)
			}
			counts, steps := d.run(t, d.cfg)
			assert.Equal(t, counts[rekey.Renamed], len(d.names), "renamed: %v", counts)
			if s := steps[inbox]; s.Outcome != rekey.Unfit || s.Err == nil || !strings.Contains(s.Err.Error(), "belongs to a shard") {
				t.Errorf("the inbox: %+v", s)
			}
			d.wantRenamed(t, before)
		}
	})
}

func TestExistingNamesAndUnknownKeysAreUnchanged(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		d := fill(t, client, 3)
		ctx := t.Context()
		taken := d.lead + ":1:big"
		redistest.Must(t, client.HSet(ctx, d.names[taken], "another's", 1).Err())
		odd := d.lead + ":odd"
		redistest.Must(t, client.Set(ctx, odd, "x", 0).Err())
		before := d.dump(t)
		delete(d.names, taken)
		for _, apply := range []bool{false, true, true} {
			d.cfg.Apply = apply
			counts, steps := d.run(t, d.cfg)
			if s := steps[taken]; s.Outcome != rekey.Taken || counts[rekey.Taken] != 1 {
				t.Errorf("the taken name: %+v, %v", s, counts)
			}
			if s := steps[odd]; s.Outcome != rekey.Unfit || s.Err == nil {
				t.Errorf("the odd key: %+v", s)
			}
		}
		d.wantRenamed(t, before)
	})
}

func TestCopyOfAKilledRunIsCompletedAndDistinguishedFromForeignKeys(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.SharedCluster(t).Client(t), t.Context()
	d := fill(t, client, 6)
	before := d.dump(t)
	copies := slices.Sorted(maps.Keys(d.names))
	for _, old := range copies {
		dump, err := client.Dump(ctx, old).Result()
		redistest.Must(t, err)
		left := max(client.PTTL(ctx, old).Val(), 0)
		redistest.Must(t, client.Restore(ctx, d.names[old], left, dump).Err())
	}
	shuffled := d.names[d.lead+":2:set"] // the same members, added in another order
	redistest.Must(t, client.Del(ctx, shuffled).Err())
	for f := range 300 {
		redistest.Must(t, client.SAdd(ctx, shuffled, fmt.Sprint("member", 299-f)).Err())
	}
	others := []string{d.lead + ":3:list", d.lead + ":3:zset", d.lead + ":3:big", d.lead + ":3:set", d.lead + ":3:text", d.lead + ":3:stream", d.lead + ":4:small"}
	for _, old := range others[:6] {
		redistest.Must(t, client.Del(ctx, d.names[old]).Err())
		redistest.Must(t, client.RPush(ctx, d.names[old], "somebody else's").Err())
	}
	redistest.Must(t, client.Expire(ctx, d.names[others[6]], time.Hour).Err()) // the same members with another expiry time
	for _, apply := range []bool{false, true} {
		d.cfg.Apply = apply
		counts, steps := d.run(t, d.cfg)
		for _, old := range others {
			assert.Equal(t, steps[old].Outcome, rekey.Taken, "%s", old)
		}
		for old, s := range steps {
			if s.Moved && !slices.Contains(others, old) && s.Outcome != rekey.Completed {
				t.Errorf("the copy of %s: %+v", old, s)
			}
		}
		// A run on one slot makes no copies: a rename is atomic.
		if counts[rekey.Taken] < len(others) || counts[rekey.Completed] < len(copies)/2 || counts[rekey.Renamed]+counts[rekey.Failed] != 0 {
			t.Errorf("%v", counts)
		}
	}
	left := d.dump(t)
	for old, name := range d.names {
		_, hasOld := left.Keys[old]
		entry, hasNew := left.Keys[name]
		if slices.Contains(others, old) {
			if !hasOld || !hasNew {
				t.Errorf("%s: a key was lost", old)
			}
			continue
		}
		if hasOld && slot.Of(old) != slot.Of(name) {
			t.Errorf("%s is still there", old)
		}
		if !hasNew || !slices.Equal(entry.Value, before.Keys[old].Value) {
			t.Errorf("%s: its copy is %v", old, entry)
		}
	}
}

// TestKeyThatChangesDuringItsMoveLosesNothing accepts two results: the key is moved completely, or it keeps its old name and is
// reported.
func TestKeyThatChangesDuringItsMoveLosesNothing(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	client, writer := cluster.Client(t), cluster.Client(t)
	d := fill(t, client, 8)
	ctx := t.Context()
	client.AddHook(afterEach(func(command string, args []any) {
		if command == "restore" { // between the copy and the deletion
			for old, name := range d.names {
				if name == args[1] && strings.HasSuffix(old, ":small") {
					writer.HIncrBy(ctx, old, "late", 1)
				}
			}
		}
	}))
	counts, steps := d.run(t, d.cfg)
	failed := 0
	for old, s := range steps {
		if !strings.HasSuffix(old, ":small") || !s.Moved {
			continue
		}
		failed++
		if s.Outcome != rekey.Failed || s.Err == nil || !strings.Contains(s.Err.Error(), "stop its writers") {
			t.Errorf("%s: %+v", old, s)
		}
		if writer.HGet(ctx, old, "late").Val() == "" || writer.Exists(ctx, s.New).Val() != 0 {
			t.Errorf("%s: the late write is %q, the outdated copy is there: %d", old, writer.HGet(ctx, old, "late").Val(), writer.Exists(ctx, s.New).Val())
		}
	}
	if failed == 0 || counts[rekey.Failed] != failed {
		t.Errorf("%d failed, %v", failed, counts)
	}
}

func TestRunReportsTheKeyItStoppedAtAndIncompleteConfig(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	d := fill(t, client, 2)
	none := func(rekey.Step) {}
	assert.ErrorContains(t, rekey.Run(t.Context(), client, rekey.Config{}, none), "Pattern or Map is empty", "an empty config")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rekey.Run(ctx, client, d.cfg, none); err == nil {
		t.Error("no error of a context that has ended")
	}
	broken := redistest.Shared(t).Client(t)
	broken.AddHook(afterEach(func(name string, _ []any) {
		if name == "scan" {
			_ = broken.Close()
		}
	}))
	assert.ErrorContains(t, rekey.Run(t.Context(), broken, d.cfg, none), `rekey: key "`+d.lead+":", "a closed client")
}

func TestRefusedKeyDoesNotEndTheRun(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	client := server.Client(t)
	d := fill(t, client, 2)
	before := d.dump(t)
	redistest.Must(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "-renamenx").Err())
	counts, steps := d.run(t, d.cfg)
	assert.Equal(t, counts[rekey.Failed], len(d.names), "failed: %v", counts)
	for _, s := range steps {
		if s.Err == nil || !strings.HasPrefix(s.Err.Error(), "NOPERM") {
			t.Errorf("%+v", s)
		}
	}
	redistest.Must(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "+renamenx").Err())
	d.run(t, d.cfg)
	d.wantRenamed(t, before)
}
