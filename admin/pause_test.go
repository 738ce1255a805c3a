package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// sorter is a publisher that records the events of each destination, in order.
type sorter struct {
	mu   sync.Mutex
	sent map[string][]string
}

func (s *sorter) Publish(_ context.Context, events []*message.RawMessage) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		s.sent[e.Destination()] = append(s.sent[e.Destination()], e.ID())
	}
	return nil
}

func (s *sorter) to(destination string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent[destination])
}

// order commits events for a destination to the outbox of an aggregate, with an ordering key unless it is empty.
func order(t testing.TB, tr *luatx.Transactor, aggregate, destination, key string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		_, err := tr.Transact(redistest.Soon(t), aggregate, func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{ID: id, Key: key, Body: []byte(
				`{"specversion":"1.0","id":"` + id + `","type":"sold","source":"/shop","destination":"` + destination + `"}`)})
		})
		redistest.Must(t, err)
	}
}

func ids(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%02d", prefix, i)
	}
	return all
}

// held waits until the outbox has the given numbers of events, and none is leased.
func held(t testing.TB, op *admin.Operator, pending, waiting int64) {
	t.Helper()
	redistest.Eventually(t, "the events to be held", func() bool {
		now, err := op.Stats(redistest.Soon(t))
		return err == nil && now.Oldest == 0 && now.Counts.Leased == 0 && now.Counts.Pending == pending && now.Counts.Waiting == waiting
	})
}

func TestPausedDestinationGetsNothingAndEverythingInOrderAfterwards(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 4)
		out := &sorter{sent: map[string][]string{}}
		redistest.Must(t, op.Pause(ctx, "bank", "they move house", time.Time{}))
		order(t, tr, "a", "bank", "", ids("early", 5)...)
		for _, cfg := range []relay.Config{{}, {NoInline: true, SweepInterval: 10 * time.Millisecond}} {
			r, err := relay.New(tr, out, cfg)
			redistest.Must(t, err)
			admintest.Running(t, r.Run)
		}
		order(t, tr, "a", "bank", "", ids("late", 5)...)
		order(t, tr, "b", "bank", "lane", ids("lane", 5)...)
		order(t, tr, "a", "shop", "", ids("other", 5)...)
		redistest.Eventually(t, "another destination to go on", func() bool { return len(out.to("shop")) == 5 })
		_, err := tr.Enqueue(ctx, "a", luatx.Event{ID: "scheduled", At: time.Now().Add(5 * time.Minute), Body: []byte(`{"id":"scheduled","type":"t","source":"/s","specversion":"1.0","destination":"bank"}`)})
		redistest.Must(t, err)
		held(t, op, 12, 4)
		if got := out.to("bank"); len(got) > 0 {
			t.Fatalf("published to a paused destination: %v", got)
		}
		for e, err := range op.Outbox().List(ctx, outbox.Pending, outbox.ListOptions{}) {
			redistest.Must(t, err)
			if e.Attempts != 0 || len(e.History) != 0 || time.Until(e.At) < 4*time.Minute {
				t.Errorf("%s: %d attempts, %v, looked at again in %v", e.ID, e.Attempts, e.History, time.Until(e.At))
			}
		}
		began := time.Now()
		if was, err := op.Resume(ctx, "bank"); err != nil || !was {
			t.Errorf("resumed: %v, %v", was, err)
		}
		redistest.Eventually(t, "the relay to publish the held events", func() bool { return len(out.to("bank")) >= 15 })
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		got := out.to("bank")
		lane := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !strings.HasPrefix(id, "lane") })
		if !slices.Equal(lane, ids("lane", 5)) {
			t.Errorf("the lane went out as %v", lane)
		}
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(slices.Concat(ids("early", 5), ids("late", 5), ids("lane", 5)))); !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
	})
}

func TestPauseOfScopeEndsByItselfForARelayThatStartsLater(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 4)
		out := &sorter{sent: map[string][]string{}}
		scoped := relay.WithScope(out, func(*message.RawMessage) string { return "host.example" })
		redistest.Must(t, op.Pause(ctx, "host.example", "for a while", time.Now().Add(3*time.Second)))
		redistest.Must(t, op.Pause(ctx, "elsewhere", "for ever", time.Time{}))
		r, err := relay.New(tr, scoped, relay.Config{})
		redistest.Must(t, err)
		stop := admintest.Running(t, r.Run)
		order(t, tr, "a", "bank", "", "1", "2")
		held(t, op, 2, 0)
		stop()
		redistest.Eventually(t, "the pause to end", func() bool {
			paused, err := op.Paused(ctx)
			redistest.Must(t, err)
			return len(paused) == 1 && paused[0].Destination == "elsewhere"
		})
		if was, err := op.Resume(ctx, "host.example"); err != nil || was {
			t.Errorf("resumed: %v, %v", was, err)
		}
		if got := out.to("bank"); len(got) > 0 {
			t.Errorf("published too early: %v", got)
		}
		next, err := relay.New(tr, scoped, relay.Config{})
		redistest.Must(t, err)
		admintest.Running(t, next.Run)
		redistest.Eventually(t, "the relay to publish the held events", func() bool { return len(out.to("bank")) == 2 })
	})
}

func TestPausesAreListedRecordedAndRejectedIfIncomplete(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		_, op := admintest.Service(t, client, 4)
		if paused, err := op.Paused(ctx); err != nil || len(paused) > 0 {
			t.Errorf("paused = %v, err = %v", paused, err)
		}
		if was, err := op.Resume(ctx, "bank"); err != nil || was {
			t.Errorf("resume of a destination that is not paused: %v, %v", was, err)
		}
		for name, err := range map[string]error{
			"without a destination":   op.Pause(ctx, "", "why", time.Time{}),
			"without a reason":        op.Pause(ctx, "bank", "", time.Time{}),
			"with an end in the past": op.Pause(ctx, "bank", "why", time.Now().Add(-time.Minute)),
			"with a long destination": op.Pause(ctx, strings.Repeat("x", 1025), "why", time.Time{}),
			"with a long reason":      op.Pause(ctx, "bank", strings.Repeat("x", 1025), time.Time{}),
		} {
			if err == nil {
				t.Errorf("a pause %s is accepted", name)
			}
		}
		until := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		redistest.Must(t, op.Pause(ctx, "bank", `they "move"`, time.Time{}))
		first, err := op.Paused(ctx)
		redistest.Must(t, err)
		redistest.Must(t, op.Pause(ctx, "bank", "longer", until))
		redistest.Must(t, op.Pause(ctx, "atelier", "closed\n", until))
		paused, err := op.Paused(ctx)
		redistest.Must(t, err)
		if len(first) != 1 || len(paused) != 2 {
			t.Fatalf("%v, then %v", first, paused)
		}
		bank := admin.Pause{Destination: "bank", Who: "alice", Why: "longer", Since: first[0].Since, Until: until}
		if since := first[0].Since; paused[1] != bank || first[0].Why != `they "move"` || time.Since(since).Abs() > time.Minute || !first[0].Until.IsZero() {
			t.Errorf("%+v, then %+v, want %+v", first[0], paused[1], bank)
		}
		if was, err := op.Resume(ctx, "bank"); err != nil || !was {
			t.Errorf("resumed: %v, %v", was, err)
		}
		now, err := op.Stats(ctx)
		redistest.Must(t, err)
		if len(now.Paused) != 1 || now.Paused[0].Destination != "atelier" {
			t.Errorf("stats report the pauses %v", now.Paused)
		}
		var acts []string
		for record, err := range op.Audit(ctx, time.Time{}) {
			redistest.Must(t, err)
			acts = append(acts, record.Who+" "+record.Act+" "+strings.Join(record.IDs, ",")+" "+record.Why)
		}
		ends := " (until " + until.UTC().Format(time.RFC3339) + ")"
		want := []string{`alice pause bank they "move"`, "alice pause bank longer" + ends, "alice pause atelier closed\n" + ends, "alice resume bank resumed"}
		if !slices.Equal(acts, want) {
			t.Errorf("audit %q\nwant  %q", acts, want)
		}
	})
}

func TestPausesAreBoundedAndEndedOnesMakeRoom(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 4)
		key := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("pauses")
		fill := func(until int64) {
			var fields []any
			for i := range 1000 {
				fields = append(fields, fmt.Sprint(i), fmt.Sprintf(`{"who":"bob","why":"x","since":"1","until":"%d"}`, until))
			}
			redistest.Must(t, client.HSet(ctx, key, fields...).Err())
		}
		fill(time.Now().Add(time.Hour).UnixMilli())
		if err := op.Pause(ctx, "bank", "why", time.Time{}); !errors.Is(err, admin.ErrTooManyPauses) {
			t.Errorf("err = %v", err)
		}
		redistest.Must(t, op.Pause(ctx, "7", "again", time.Time{}))
		fill(time.Now().Add(-time.Hour).UnixMilli())
		redistest.Must(t, op.Pause(ctx, "bank", "why", time.Time{}))
		if n := client.HLen(ctx, key).Val(); n != 1 {
			t.Errorf("%d pauses are kept", n)
		}
	})
}

func TestRelayKeepsKnownPausesWhenItCannotReadThem(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ctx := redistest.Soon(t)
	tr, op := admintest.Service(t, client, 4)
	var log admintest.Lines
	out := &sorter{sent: map[string][]string{}}
	redistest.Must(t, op.Pause(ctx, "bank", "why", time.Time{}))
	r, err := relay.New(tr, out, relay.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	redistest.Must(t, err)
	admintest.Running(t, r.Run)
	order(t, tr, "a", "bank", "", "1")
	held(t, op, 1, 0)
	key := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("pauses")
	redistest.Must(t, client.Rename(ctx, key, key+":away").Err())
	redistest.Must(t, client.Set(ctx, key, "of another type", 0).Err())
	redistest.Eventually(t, "the relay logs the failure", func() bool { return strings.Contains(log.Text(), "reading pauses failed") })
	order(t, tr, "a", "bank", "", "2")
	order(t, tr, "a", "shop", "", "3")
	redistest.Eventually(t, "another destination to go on", func() bool { return len(out.to("shop")) == 1 })
	redistest.Eventually(t, "the event to be held", func() bool {
		c, err := op.Outbox().Counts(ctx)
		oldest, failed := op.Outbox().Oldest(ctx)
		return err == nil && failed == nil && c.Pending == 2 && oldest == 0
	})
	if got := out.to("bank"); len(got) > 0 {
		t.Errorf("published %v", got)
	}
	redistest.Must(t, client.Rename(ctx, key+":away", key).Err())
	if _, err := op.Resume(ctx, "bank"); err != nil {
		t.Error(err)
	}
	redistest.Eventually(t, "the relay to publish the held events", func() bool { return len(out.to("bank")) == 2 })
}

func TestPauseThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx := redistest.Soon(t)
	tr, op := admintest.Service(t, client, 1)
	redistest.Must(t, op.Pause(ctx, "bank", "why", time.Time{}))
	key := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("pauses")
	redistest.Must(t, client.HSet(ctx, key, "shop", "no JSON").Err())
	if all, err := op.Paused(ctx); err == nil || !strings.Contains(err.Error(), `"shop"`) {
		t.Errorf("%v, %v", all, err)
	}
}

func TestPauseThatCannotBeReadIsNotResumed(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 1)
		for _, text := range []string{"no JSON", "", "5"} {
			redistest.Must(t, client.HSet(ctx, link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]).Key("pauses"), "bank", text).Err())
			if was, err := op.Resume(ctx, "bank"); err != nil || was {
				t.Errorf("%q is resumed: %v, %v", text, was, err)
			}
		}
	})
}

func TestPauseIsResumedOnceWithinAMillisecond(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	server.SetTime(time.Now())
	ctx := redistest.Soon(t)
	_, op := admintest.Service(t, client, 1)
	redistest.Must(t, op.Pause(ctx, "bank", "why", time.Time{}))
	for _, want := range []bool{true, false} {
		if was, err := op.Resume(ctx, "bank"); err != nil || was != want {
			t.Errorf("resumed: %v, %v; want %v", was, err, want)
		}
	}
}

func TestHeldEventsAreFoundAmongEventsThatAreDueLater(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, _ := admintest.Service(t, client, 1)
		shard := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0])
		soon := time.Now().Add(time.Minute).UnixMilli()
		var members []redis.Z
		for i := range 2500 { // with the same time, and with different times
			members = append(members, redis.Z{Score: float64(soon), Member: fmt.Sprintf("same%d", i)},
				redis.Z{Score: float64(soon) + 0.5, Member: fmt.Sprintf("held%d", i)},
				redis.Z{Score: float64(soon + int64(i)), Member: fmt.Sprintf("other%d", i)},
				redis.Z{Score: float64(soon+int64(i)) + 0.5, Member: fmt.Sprintf("held'%d", i)})
		}
		redistest.Must(t, client.ZAdd(ctx, shard.Key("pending"), members...).Err())
		if n, err := link.Of(tr).Scripts.Unhold(ctx, shard); err != nil || n != 5000 {
			t.Errorf("%d were held, %v", n, err)
		}
		due, err := client.ZRangeByScore(ctx, shard.Key("pending"), &redis.ZRangeBy{Min: "-inf", Max: fmt.Sprint(soon - 1)}).Result()
		redistest.Must(t, err)
		if len(due) != 5000 || slices.ContainsFunc(due, func(id string) bool { return !strings.HasPrefix(id, "held") }) {
			t.Errorf("%d are due", len(due))
		}
	})
}

func TestPauseOfLongBacklogCostsLittleAndEndsQuickly(t *testing.T) {
	t.Parallel()
	n, watch := 5_000, time.Second
	if os.Getenv("LUATX_VERIFY") != "" {
		n, watch = 100_000, 10*time.Second
	}
	client := redistest.Single(t, redistest.Own()).Client(t)
	ctx := t.Context()
	tr, op := admintest.Service(t, client, 16)
	redistest.Must(t, op.Pause(ctx, "bank", "they move", time.Time{}))
	for i := 0; i < n; i += 500 {
		var events []luatx.Event
		for j := range 500 {
			id := fmt.Sprint(i + j)
			events = append(events, luatx.Event{ID: id, Body: []byte(`{"specversion":"1.0","id":"` + id + `","type":"sold","source":"/shop","destination":"bank"}`)})
		}
		_, err := tr.Enqueue(ctx, fmt.Sprint("a", i/500), events...)
		redistest.Must(t, err)
	}
	out := &sorter{sent: map[string][]string{}}
	r, err := relay.New(tr, out, relay.Config{})
	redistest.Must(t, err)
	began := time.Now()
	admintest.Running(t, r.Run)
	held(t, op, int64(n), 0)
	took := time.Since(began)
	before := processed(t, client)
	<-time.After(watch)
	each := float64(processed(t, client)-before) / watch.Seconds()
	if each > 1000 {
		t.Errorf("%.0f commands a second while %d events are held", each, n)
	}
	began = time.Now()
	_, err = op.Resume(ctx, "bank")
	redistest.Must(t, err)
	redistest.Eventually(t, "all to go out", func() bool { return len(out.to("bank")) >= n })
	t.Logf("%d events: held in %v, %.0f commands a second while they are, all out %v after the end", n, took, each, time.Since(began))
}

// processed returns the number of commands that a server has run, including those of scripts.
func processed(t testing.TB, client *redis.Client) (n int64) {
	t.Helper()
	info, err := client.InfoMap(t.Context(), "stats").Result()
	redistest.Must(t, err)
	_, err = fmt.Sscan(info["Stats"]["total_commands_processed"], &n)
	redistest.Must(t, err)
	return n
}

func TestPausesAreKeptAsLongAsAnEventMayBeHeldForThem(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	ctx, now := t.Context(), time.UnixMilli(1_700_000_000_000)
	server.SetTime(now)
	tr, _ := admintest.Service(t, client, 1)
	scripts := link.Of(tr).Scripts
	home := scripts.Shard(tr.Keyspace().Slots()[0])
	pause := func(n int, destination string, until time.Time) (letter byte) {
		t.Helper()
		letter, err := scripts.Pause(ctx, home, shard.Act{Operation: "op", Call: n, Who: "alice", Why: "why"}, destination, "why", until)
		redistest.Must(t, err)
		return letter
	}
	for destination, until := range map[string]int64{"active": 1, "ended": 0, "ended long ago": -600_000, "forgotten": -600_001} {
		redistest.Must(t, client.HSet(ctx, home.Key("pauses"), destination, fmt.Sprintf(`{"since":"1","until":"%d"}`, now.UnixMilli()+until)).Err())
	}
	redistest.Must(t, client.HSet(ctx, home.Key("pauses"), "number", "5", "text", "no JSON").Err())
	if letter := pause(1, "new", now); letter != shard.ActState {
		t.Errorf("a pause that is over: %c", letter)
	}
	kept := client.HKeys(ctx, home.Key("pauses")).Val()
	slices.Sort(kept)
	if !slices.Equal(kept, []string{"active", "ended", "ended long ago"}) {
		t.Errorf("kept: %q", kept)
	}
	if one, two := pause(2, "active", now.Add(time.Millisecond)), pause(3, "ended", time.Time{}); one != shard.ActDone || two != shard.ActDone {
		t.Errorf("%c, %c", one, two)
	}
	paused, _, err := scripts.Pauses(ctx, home)
	redistest.Must(t, err)
	for _, p := range paused {
		if want := map[string]int64{"active": 1, "ended": now.UnixMilli(), "ended long ago": 1}[p.Destination]; p.Since.UnixMilli() != want {
			t.Errorf("%s is paused since %v, want %v", p.Destination, p.Since.UnixMilli(), want)
		}
	}
}
