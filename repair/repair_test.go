package repair_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/repair"
)

const digest = "=da39a3ee5e6b4b0d3255bfef95601890afd80709"

// largeEvent is an event whose body has its own key.
var largeEvent = [][]any{
	{"HSET", "@entries", "big", "~9 n1"}, {"SET", "@body:n1", `{"a":"b"}`}, {"HSET", "@bodies", "n1", "big"}, {"ZADD", "@pending", 1, "big"},
}

// ago returns a time in the past, in the shard's format.
func ago(d time.Duration) string { return strconv.FormatInt(time.Now().Add(-d).UnixMilli(), 10) }

type invariant struct {
	name    string
	corrupt [][]any
	want    []string
}

// invariants are the cases of TestCheckReportsAndFixRepairsEveryBrokenInvariant: the commands that damage a furnished shard (keys are @name), and the findings.
var invariants = []invariant{
	{"sound", nil, nil},
	{"pending without a body", [][]any{{"ZADD", "@pending", 1, "x"}}, []string{"orphan pending/x"}},
	{"parked without a body", [][]any{{"ZADD", "@parked", 1, "x"}}, []string{"orphan parked/x"}},
	{"sent without a body", [][]any{{"ZADD", "@sent", 1, "x"}}, []string{"orphan sent/x"}},
	{"no bodies at all", [][]any{{"DEL", "@entries"}}, []string{
		"leftover attempts/parked", "leftover errors/parked",
		"leftover headers/first", "leftover headers/second", "leftover headers/third",
		"orphan lanes/first", "orphan lanes/second", "orphan lanes/third",
		"orphan parked/parked", "orphan pending/first", "orphan pending/leased", "orphan pending/pending", "orphan sent/sent",
	}},
	{"body in no index", [][]any{{"ZREM", "@pending", "pending"}}, []string{"unindexed pending/pending"}},
	{"leased body in no index", [][]any{{"ZREM", "@pending", "leased"}}, []string{"unindexed pending/leased"}},
	{"new body in no index", [][]any{{"HSET", "@entries", "x", body("x")}}, []string{"unindexed pending/x"}},
	{"sent in no index", [][]any{{"ZREM", "@sent", "sent"}}, []string{"unindexed sent/sent"}},
	{"indexes lost", [][]any{{"DEL", "@pending", "@parked", "@sent"}}, []string{
		"unindexed pending/first", "unindexed pending/leased", "unindexed pending/parked",
		"unindexed pending/pending", "unindexed sent/sent",
	}},
	{"pending and parked", [][]any{{"ZADD", "@parked", 1, "pending"}}, []string{"misplaced pending/pending"}},
	{"leased and parked", [][]any{{"ZADD", "@parked", 1, "leased"}}, []string{"misplaced pending/leased"}},
	{"sent and pending", [][]any{{"ZADD", "@pending", 1, "sent"}}, []string{"misplaced pending/sent"}},
	{"sent and parked", [][]any{{"ZADD", "@parked", 1, "sent"}}, []string{"misplaced parked/sent"}},
	{"pending and said to be sent", [][]any{{"ZADD", "@sent", 1, "pending"}}, []string{"misplaced sent/pending"}},
	{
		"body that is said to be sent",
		[][]any{{"ZADD", "@sent", 1, "pending"}, {"ZREM", "@pending", "pending"}},
		[]string{"misplaced sent/pending", "unindexed pending/pending"},
	},
	{"digest in pending alone", [][]any{{"HSET", "@entries", "pending", digest}}, []string{"misplaced pending/pending", "unindexed sent/pending"}},
	{"attempts without a body", [][]any{{"HSET", "@attempts", "x", 1}}, []string{"leftover attempts/x"}},
	{"attempts of a sent one", [][]any{{"HSET", "@attempts", "sent", 1}}, []string{"leftover attempts/sent"}},
	{"error without a body", [][]any{{"HSET", "@errors", "x", "e"}}, []string{"leftover errors/x"}},
	{"attempts that are none", [][]any{{"HSET", "@attempts", "leased", "many"}}, []string{"value attempts/leased"}},
	{"most attempts", [][]any{{"HSET", "@attempts", "leased", 999999999}}, nil},
	{"too many attempts", [][]any{{"HSET", "@attempts", "leased", 1000000000}}, []string{"value attempts/leased"}},
	{"never due", [][]any{{"ZADD", "@pending", "inf", "pending"}}, []string{"value pending/pending"}},
	{"inbox past its retention", [][]any{{"HSET", "@inbox:a", "id", generation{2*retention + time.Hour, false}}}, []string{"stale inbox:a"}},
	{"inbox within its retention", [][]any{{"HSET", "@inbox:a", "id", generation{2*retention - time.Hour, false}}}, nil},
	{
		"both generations",
		[][]any{{"HSET", "@inbox:a", "id", generation{2*retention + time.Hour, true}}, {"HSET", "@inbox:b", "id", generation{3 * retention, false}}},
		[]string{"stale inbox:a", "stale inbox:b"},
	},
	{
		"older generation",
		[][]any{{"HSET", "@inbox:a", "id", generation{retention + time.Hour, true}}, {"HSET", "@inbox:b", "id", generation{3 * retention, false}}},
		[]string{"stale inbox:b"},
	},
	{
		"older generation within its retention",
		[][]any{{"HSET", "@inbox:a", "id", generation{retention - time.Hour, true}}, {"HSET", "@inbox:b", "id", generation{3 * retention, false}}},
		nil,
	},
	{"newer generation lost", [][]any{{"RENAME", "@inbox:a", "@inbox:b"}}, []string{"unlinked inbox:b"}},
	{
		"newer generation lost, and the older one began long ago",
		[][]any{{"RENAME", "@inbox:a", "@inbox:b"}, {"HSET", "@inbox:b", "id", generation{3*retention + time.Hour, false}}},
		[]string{"unlinked inbox:b"},
	},
	{
		"newer generation replaced by an identity alone",
		[][]any{{"RENAME", "@inbox:a", "@inbox:b"}, {"HSET", "@inbox:a", "id", generation{never, false}}},
		[]string{"unlinked inbox:b", "value inbox:a/id"},
	},
	{"older generation not linked", [][]any{{"HSET", "@inbox:b", "id", generation{retention, false}}}, []string{"unlinked inbox:b"}},
	{"older generation lost", [][]any{{"HSET", "@inbox:a", "id", generation{time.Hour, true}}}, []string{"value inbox:a/id"}},
	{"inbox of nobody", [][]any{{"HDEL", "@inbox:a", "id"}}, []string{"value inbox:a/id"}},
	{"inbox from the future", [][]any{{"HSET", "@inbox:a", "id", generation{-time.Hour, false}}}, []string{"value inbox:a/id"}},
	{"inbox without a time", [][]any{{"HSET", "@inbox:a", "id", generation{never, false}}}, []string{"value inbox:a/id"}},
	{"inbox of no time", [][]any{{"HSET", "@inbox:a", "id", "0000000000000soon         00000000000000" + identityHere}}, []string{"value inbox:a/id"}},
	{"replies past the retention", [][]any{
		{"HSET", "@results", "start", ago(2*retention + time.Hour), "d", "1:x"},
		{"HSET", "@results:b", "start", ago(2*retention - time.Hour), "d", "1:x"},
	}, []string{"stale results"}},
	{"replies without a time", [][]any{{"HSET", "@results:b", "d", "1:x"}}, []string{"value results:b/start"}},
	{"broken", [][]any{{"HSET", "@broken", "0123456789abcdef", "HSET k"}}, []string{"broken broken/30313233343536373839616263646566"}},
	{"routes of another type", [][]any{{"SADD", "@routes", "v"}, {"ZADD", "@pending", 1, "x"}}, []string{"orphan pending/x", "type routes"}},
	{"bodies of another type", [][]any{{"DEL", "@entries"}, {"SET", "@entries", "v"}}, []string{"type entries"}},
	{"index of another type", [][]any{{"DEL", "@pending"}, {"RPUSH", "@pending", "v"}}, []string{"type pending"}},
	{"a void that is there", [][]any{{"SET", "@void", "v"}}, []string{"type void"}},
	{"largest number of leases that repair accepts", [][]any{{"SET", "@seq", "999999999999999999"}}, nil},
	{"a number of leases that is larger", [][]any{{"SET", "@seq", "1000000000000000000"}}, []string{"type seq"}},
	{"leases that do not count", [][]any{{"SET", "@seq", "v"}}, []string{"type seq"}},
	{"timers of another type", [][]any{{"SET", "@due", "v"}, {"SADD", "@decided", "v"}}, []string{"type decided", "type due"}},
	{"large body", largeEvent, nil},
	{"large body that is lost", slices.Concat(largeEvent, [][]any{{"DEL", "@body:n1"}}), []string{
		"lost entries/big", "misplaced pending/big", "unindexed parked/big",
	}},
	{"large body of a sent one that is lost", slices.Concat(largeEvent, [][]any{
		{"DEL", "@body:n1"}, {"HSET", "@entries", "big", digest + "~9 n1"}, {"ZREM", "@pending", "big"}, {"ZADD", "@sent", 1, "big"},
	}), []string{"lost entries/big"}},
	{"large body that expires", slices.Concat(largeEvent, [][]any{{"PEXPIRE", "@body:n1", 1_000_000}}), []string{"value body/big"}},
	{"large body in no index", slices.Concat(largeEvent, [][]any{{"HDEL", "@bodies", "n1"}}), []string{"unlinked bodies/n1"}},
	{"large body of another one", slices.Concat(largeEvent, [][]any{{"HSET", "@bodies", "n1", "x"}}), []string{"orphan bodies/n1", "unlinked bodies/n1"}},
	{"large body of nobody", [][]any{{"SET", "@body:n2", "v"}, {"HSET", "@bodies", "n2", "x"}}, []string{"orphan bodies/n2"}},
	{"large bodies of another type", slices.Concat(largeEvent, [][]any{{"DEL", "@bodies"}, {"SET", "@bodies", "v"}}), []string{"type bodies"}},
	{"turns of another type", [][]any{{"SET", "@repair", "v"}, {"SET", "@sweep", "v"}}, []string{"type repair", "type sweep"}},
}

func (s *shop) damage(t testing.TB, command []any) {
	t.Helper()
	command = slices.Clone(command)
	for i, arg := range command {
		if g, ok := arg.(generation); ok {
			command[i] = s.meta(g)
		} else if name, ok := strings.CutPrefix(fmt.Sprint(arg), "@"); ok {
			command[i] = s.key(name)
		} else if text, ok := strings.CutSuffix(fmt.Sprint(arg), identityHere); ok {
			command[i] = text + link.Of(s.tr).Scripts.Identity()
		}
	}
	s.do(t, command...)
}

// TestCheckReportsAndFixRepairsEveryBrokenInvariant uses healed.
func TestCheckReportsAndFixRepairsEveryBrokenInvariant(t *testing.T) {
	t.Parallel()
	redistest.Servers(t, func(t *testing.T, client redis.UniversalClient) {
		for _, c := range slices.Concat(invariants, orderInvariants, inboxInvariants) {
			s := newShop(t, client)
			s.furnish(t)
			for _, command := range c.corrupt {
				s.damage(t, command)
			}
			before := s.read(t)
			got := named(t, newWorker(t, s.tr, repair.Config{}).Check(redistest.Soon(t)))
			if after := s.read(t); !equal(before, after) {
				t.Errorf("%s: a dry run has changed\n%v\nto\n%v", c.name, before, after)
			}
			if !slices.ContainsFunc(c.want, ofCounts) { // they follow from the others
				got = slices.DeleteFunc(got, ofCounts)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: named %q, want %q", c.name, got, c.want)
			}
			healed(t, t, s)
		}
	})
}

func TestInboxIdentityStaysWhileEventsOrTimersNeedIt(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, guarded := range map[string][]any{
			"nothing":        nil,
			"events":         {"HSET", "@entries", "x", body("x")},
			"timers":         {"ZADD", "@due", ago(0), "x"},
			"decided timers": {"ZADD", "@decided", ago(0), "fx"},
		} {
			s := newShop(t, client)
			s.damage(t, []any{"HSET", "@inbox:a", "id", generation{never, false}})
			if guarded != nil {
				s.damage(t, guarded)
			}
			named(t, newWorker(t, s.tr, repair.Config{}).Fix(redistest.Soon(t)))
			if stays := client.Exists(redistest.Soon(t), s.key("inbox:a")).Val() == 1; stays != (guarded != nil) {
				t.Errorf("%s: the identity stays: %t", name, stays)
			}
		}
	})
}

// TestRepairedShardWorksAgain checks that lost ids count again, a lost event is due, a sent id rejects another body, and events
// keep their owner without an inbox.
func TestRepairedShardWorksAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		s.furnish(t)
		s.do(t, "RENAME", s.key("inbox:a"), s.key("inbox:b"))
		s.do(t, "DEL", s.key("pending"), s.key("sent"))
		w := newWorker(t, s.tr, repair.Config{})
		named(t, w.Fix(redistest.Soon(t)))
		result, err := s.tr.Transact(redistest.Soon(t), "a", func(*luatx.Tx) error { return nil }, luatx.WithID("tx of leased"))
		if err != nil || result.Outcome != luatx.Duplicate {
			t.Errorf("an id of the older generation: %v, %v", result.Outcome, err)
		}
		_, err = s.tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{ID: "sent", Data: "another"})
		})
		if failed := new(luatx.CommandError); !errors.As(err, &failed) {
			t.Errorf("another event under the id of a sent one: %v", err)
		}
		ids := map[string]int{}
		claim, err := link.Of(s.tr).Scripts.Claim(redistest.Soon(t), link.Of(s.tr).Scripts.Shard(s.slot), shard.Claiming{Limit: 10, Lease: time.Hour, Attempts: 10})
		redistest.Must(t, err)
		for _, e := range claim.Events { // the lease was lost with its index
			ids[e.ID] = e.Attempt
		}
		if !maps.Equal(ids, map[string]int{"leased": 1, "pending": 1, "first": 1}) {
			t.Errorf("due with their attempts: %v", ids)
		}
		s.damage(t, []any{"HSET", "@inbox:a", "id", generation{3 * retention, false}})
		named(t, w.Fix(redistest.Soon(t)))
		other, err := luatx.New(client, luatx.Config{Namespace: s.tr.Config().Namespace, Keyspace: luatx.OwnTags()})
		redistest.Must(t, err)
		if got := named(t, newWorker(t, other, repair.Config{}).Fix(redistest.Soon(t), s.slot)); !slices.Equal(got, []string{"foreign inbox:a"}) {
			t.Errorf("a Transactor of another keyspace found %q", got)
		}
		s.do(t, "DEL", s.key("entries"))
		for range 3 { // the ids of A and of B, and the identity
			s.damage(t, []any{"HSET", "@inbox:a", "id", generation{3 * retention, true}})
			named(t, w.Fix(redistest.Soon(t)))
			named(t, w.Fix(redistest.Soon(t)))
		}
		if n := client.Exists(redistest.Soon(t), s.key("inbox:a")).Val(); n != 0 {
			t.Error("the identity of an empty shard stays for ever")
		}
	})
}

func TestForeignShardIsReportedAndUnchanged(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		s.furnish(t)
		s.do(t, "ZADD", s.key("pending"), 1, "x")
		other, err := luatx.New(client, luatx.Config{Namespace: s.tr.Config().Namespace, Keyspace: luatx.OwnTags()})
		redistest.Must(t, err)
		w := newWorker(t, other, repair.Config{})
		for _, generation := range []string{"inbox:a", "inbox:b"} {
			if generation == "inbox:b" {
				s.do(t, "RENAME", s.key("inbox:a"), s.key("inbox:b"))
			}
			before := s.read(t)
			found := 0
			for f, err := range w.Fix(redistest.Soon(t), s.slot) {
				redistest.Must(t, err)
				if found++; f.Kind != repair.Foreign || f.Fixed || !strings.Contains(f.Detail, "1 partitions") || found > 1 {
					t.Errorf("found %s", f)
				}
			}
			if got := s.read(t); !equal(got, before) || found != 1 {
				t.Errorf("%d findings; %v became %v", found, before, got)
			}
		}
	})
}

func TestLargeShardIsCheckedInBoundedStepsAndRepaired(t *testing.T) {
	t.Parallel()
	const n, step = 3000, 50
	redistest.Servers(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprintf("e%04d", i)
		}
		redistest.Must(t, s.emit(redistest.Soon(t), ids...))
		var args []any
		for _, id := range ids[:n/2] {
			args = append(args, id)
		}
		s.do(t, append([]any{"ZREM", s.key("pending")}, args...)...)
		s.do(t, append([]any{"HDEL", s.key("entries")}, args[:n/4]...)...)
		for i := range n {
			args = append(args[:0:0], "ZADD", s.key("pending"), 1)
			if i%10 == 0 {
				s.do(t, append(args, fmt.Sprint("orphan", i))...)
			}
		}
		want := n/4 + n/10
		w := newWorker(t, s.tr, repair.Config{Step: step})
		if got := slices.DeleteFunc(named(t, w.Check(redistest.Soon(t))), ofCounts); len(slices.Compact(got)) != want {
			t.Errorf("%d findings, want %d", len(got), want)
		}
		named(t, w.Fix(redistest.Soon(t)))
		stats := w.Stats()
		if stats.Fixed[repair.Unindexed] != n/4 || stats.Fixed[repair.Orphan] != n/10 || stats.Steps < n/step {
			t.Errorf("%+v", stats)
		}
		if got := s.read(t).disagreements(); len(got) > 0 {
			t.Errorf("left: %q", got)
		}
	})
}

func TestEmptyShardsCostNoScript(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	s := newShop(t, redistest.Client(t, proxy.Addr()), func(c *luatx.Config) { c.Keyspace = luatx.OwnTags() })
	redistest.Must(t, s.emit(redistest.Soon(t), "1"))
	_, err := s.tr.Transact(redistest.Soon(t), "b", func(tx *luatx.Tx) error { return tx.Emit(luatx.Event{ID: "2", Body: []byte(body("2"))}) })
	redistest.Must(t, err)
	w := newWorker(t, s.tr, repair.Config{})
	named(t, w.Fix(redistest.Soon(t))) // the server loads the script
	before := proxy.Count("EVALSHA")
	if got := named(t, w.Fix(redistest.Soon(t))); len(got) > 0 || proxy.Count("EVALSHA")-before != 2 || w.Stats().Shards != 4 {
		t.Errorf("%q in %d scripts; %+v", got, proxy.Count("EVALSHA")-before, w.Stats())
	}
}

func TestListingStopsWithItsReaderOrContextAndReportsErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "-hscan").Err())
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" })
	s := newShop(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(4).WithPrefix(c.Namespace) })
	for _, n := range s.tr.Keyspace().Slots() {
		s.do(t, "ZADD", link.Of(s.tr).Scripts.Shard(n).Key("pending"), 1, "x", 1, "y")
	}
	w := newWorker(t, s.tr, repair.Config{})
	for _, n := range []int{-1, 16384} {
		turns := 0
		for _, err := range w.Fix(redistest.Soon(t), s.slot, n) {
			if turns++; err == nil || !strings.Contains(err.Error(), "use 0 to 16383") || turns > 1 {
				t.Errorf("slot %d: %v", n, err)
			}
		}
		if turns != 1 {
			t.Errorf("slot %d: %d errors", n, turns)
		}
	}
	if got := named(t, w.Check(redistest.Soon(t), 0, 16383)); len(got) > 0 {
		t.Errorf("slots that no shard has: %q", got)
	}
	for _, err := range w.Fix(redistest.Soon(t)) {
		redistest.Must(t, err)
		break
	}
	for i, n := range s.tr.Keyspace().Slots() { // the step continues in the background after the listing was stopped
		if got := named(t, w.Check(redistest.Soon(t), n)); len(got) != min(i, 1)*2 {
			t.Errorf("slot %d: %q", n, got)
		}
	}
	s.do(t, "HSET", s.key("entries"), "z", body("z")) // this user may not scan that shard
	findings, failures := 0, 0
	for f, err := range w.Check(redistest.Soon(t)) {
		if err != nil {
			failures++
		} else if f.String() != fmt.Sprintf("slot %d: pending %q has no body: to be removed", f.Slot, f.ID) {
			t.Errorf("a line: %s", f)
		} else {
			findings++
		}
	}
	if findings != 6 || failures != 1 {
		t.Errorf("%d findings, %d failures", findings, failures)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failures = 0
	for _, err := range w.Check(ended) {
		if failures++; !errors.Is(err, context.Canceled) || failures > 1 {
			t.Errorf("a listing whose time is over: %v", err)
		}
	}
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	s := newShop(t, client)
	for field, cfg := range map[string]repair.Config{
		"Step": {Step: 1001}, "Lease": {Lease: time.Millisecond}, "Interval": {Interval: -1}, "Step is -1": {Step: -1},
	} {
		if _, err := repair.New(s.tr, cfg); err == nil || !strings.Contains(err.Error(), "repair: Config."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := repair.New(nil, repair.Config{}); err == nil {
		t.Error("no Transactor was taken")
	}
}

// TestFixWithAShorterRetentionKeepsNewIDs checks that Fix with a shorter retention forgets no id and no kept reply that is younger
// than this retention, and that it removes both from an idle shard afterwards.
// TestFixRemembersASentIDForAWholeRetention tests an id whose time was lost: it is not forgotten too early.
func TestFixRemembersASentIDForAWholeRetention(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		s.furnish(t)
		s.damage(t, []any{"ZREM", "@sent", "sent"})
		named(t, newWorker(t, s.tr, repair.Config{}).Fix(redistest.Soon(t)))
		at := time.UnixMilli(int64(client.ZScore(redistest.Soon(t), s.key("sent"), "sent").Val()))
		if since := time.Since(at); since < -time.Minute || since > time.Minute {
			t.Errorf("the id is remembered from %v on, want from now on", at)
		}
	})
}

func TestFixWithAShorterRetentionKeepsNewIDs(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		long := newShop(t, client)
		ctx, settings := redistest.Soon(t), long.tr.Config()
		settings.Retention = time.Hour
		shorter, err := luatx.New(client, settings)
		redistest.Must(t, err)
		short, k := &shop{shorter, client, long.slot}, long.key("k")
		call := func() (luatx.Outcome, string) {
			t.Helper()
			var n *redis.IntCmd
			result, err := short.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				n = tx.Pipeline().Incr(ctx, k)
				return nil
			}, luatx.WithID("new"), luatx.KeepReplies())
			redistest.Must(t, err)
			return result.Outcome, fmt.Sprint(n.Val(), n.Err())
		}
		began := func(age time.Duration) { // the generations began under the longer retention, or time has passed
			for _, name := range []string{"inbox:a", "results", "results:b"} {
				if client.Exists(ctx, short.key(name)).Val() == 0 {
					continue
				}
				if start := time.Now().Add(-age).UnixMilli(); name == "inbox:a" {
					meta := client.HGet(ctx, short.key(name), "id").Val()
					short.do(t, "HSET", short.key(name), "id", fmt.Sprintf("%013d%013d%s", start+time.Hour.Milliseconds(), start, meta[26:]))
				} else {
					short.do(t, "HSET", short.key(name), "start", start)
				}
			}
		}
		fix := func() { named(t, newWorker(t, short.tr, repair.Config{}).Fix(ctx)) }
		call()
		began(20 * time.Hour)
		fix()
		fix() // the next round
		if outcome, reply := call(); outcome != luatx.Duplicate || reply != "1 <nil>" {
			t.Errorf("a new id: %v, reply %s", outcome, reply)
		}
		for range 3 {
			began(3 * time.Hour)
			fix()
		}
		if n := client.Exists(ctx, short.key("inbox:a"), short.key("inbox:b"), short.key("results"), short.key("results:b")).Val(); n != 0 {
			t.Errorf("%d keys of an idle shard stay", n)
		}
	})
}
