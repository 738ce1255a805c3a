package outbox_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

// listed returns the events of a listing as texts.
func listed(t testing.TB, events iter.Seq2[outbox.Event, error]) []string {
	t.Helper()
	list := []string{}
	for e, err := range events {
		redistest.Must(t, err)
		list = append(list, e.ID)
	}
	return list
}

func TestEachEventIsListedOnlyInItsStateWithAllDetails(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "d", "", "leased", "sent", "bare")
		lease, taken := y.claim(time.Hour)
		y.settle("sent", "", "", "", "sent", "bare")
		y.emit("t", "d", "a\x00%", "head", "second", "third")
		y.emit("t", "d", "b", "blocks", "blocked")
		y.emit("t", "d", "", "due", "failed", "parked")
		y.park("odd", "blocks", "parked")
		for range 7 {
			y.settle("failed", "", "slow", "took\ntoo long", "failed")
		}
		_, err := y.store.Erase(redistest.Soon(t), y.slot, "asked to", "bare")
		redistest.Must(t, err)
		later := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		_, err = y.tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{ID: "scheduled", Body: []byte(`{"specversion":"1.0","id":"scheduled","source":"/s","type":"t"}`), At: later})
		})
		redistest.Must(t, err)
		if len(taken) != 3 {
			t.Fatalf("claimed %v", taken)
		}
		for state, want := range map[outbox.State][]string{
			outbox.Leased:  {"leased"},
			outbox.Sent:    {"bare", "sent"},
			outbox.Waiting: {"blocked", "second", "third"},
			outbox.Parked:  {"blocks", "parked"},
			outbox.Pending: {"due", "failed", "head", "scheduled"},
		} {
			for _, opts := range []outbox.ListOptions{{}, {NoBodies: true}, {Slots: []int{y.slot}}, {Slots: []int{y.slot + 1}, Filter: outbox.Filter{Slots: []int{y.slot}}}} {
				got := listed(t, y.store.List(redistest.Soon(t), state, opts))
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%s %+v: %v, want %v", state, opts, got, want)
				}
			}
			if got := listed(t, y.store.List(redistest.Soon(t), state, outbox.ListOptions{Slots: []int{y.slot + 1}})); len(got) > 0 {
				t.Errorf("another shard's: %v", got)
			}
			for e, err := range y.store.List(redistest.Soon(t), state, outbox.ListOptions{NoBodies: true}) {
				if err != nil || e.Message != nil || e.Body != nil || e.Destination != "" {
					t.Errorf("without its body: %+v, %v", e, err)
				}
			}
			for _, id := range want {
				e := y.want(id, state)
				var young []string
				for _, other := range want {
					if state == outbox.Waiting || !y.want(other, state).At.Before(e.At) {
						young = append(young, other)
					}
				}
				since := e.At
				if state == outbox.Waiting {
					since = later
				}
				if got := listed(t, y.store.List(redistest.Soon(t), state, outbox.ListOptions{Since: later.Add(time.Hour), Filter: outbox.Filter{IDs: want}})); state != outbox.Waiting && len(got) > 0 {
					t.Errorf("%s since a time in the future: %v", state, got)
				}
				for _, f := range []outbox.Filter{{}, {IDs: want}} {
					got := listed(t, y.store.List(redistest.Soon(t), state, outbox.ListOptions{Since: since, Filter: f}))
					slices.Sort(got)
					if !slices.Equal(got, young) {
						t.Errorf("%s since the time of %s: %v, want %v; %+v", state, id, got, young, f)
					}
				}
				if e.Slot != y.slot || e.ID != id || (e.Message == nil) != (id == "bare") || e.At.IsZero() != (state == outbox.Waiting) {
					t.Errorf("%+v", e)
				}
			}
		}
		if e := y.want("second", outbox.Waiting); e.Key != "a\x00%" || e.Destination != "d" || e.Message.ID() != "second" || len(e.Body) == 0 {
			t.Errorf("%+v", e)
		}
		e := y.want("failed", outbox.Pending)
		if len(e.History) != 5 || e.Attempts != 7 || e.Class != "slow" || e.Error != "took too long" || e.History[0].Attempt != 7 || e.History[4].Attempt != 3 || e.History[0].At.IsZero() {
			t.Errorf("%+v", e)
		}
		if e := y.want("leased", outbox.Leased); e.Lease != lease || e.Attempts != 1 || time.Until(e.At) < 50*time.Minute {
			t.Errorf("%+v", e)
		}
		if e := y.want("scheduled", outbox.Pending); !e.At.Equal(later) {
			t.Errorf("%+v", e)
		}
		for _, err := range y.store.List(redistest.Soon(t), "lost", outbox.ListOptions{}) {
			if err == nil || !strings.Contains(err.Error(), `"lost"`) {
				t.Error(err)
			}
		}
		c := y.counts()
		want := outbox.Counts{
			Pending: 5, Leased: 1 + 2, Waiting: 3, Parked: 2, Sent: 2, Bytes: c.Bytes,
			Totals: outbox.Totals{Enqueued: 12, Sent: 2, Failed: 9, Parked: 2},
		}
		if want.Leased = c.Leased; c != want || c.Leased < 1 {
			t.Errorf("%+v, want\n%+v", c, want)
		}
	})
}

func TestListYieldsEachEventOnceWhileEventsAreRemoved(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		plain, ordered := numbered(1300), make([]string, 450)
		y.emit("t", "", "", plain...)
		for i := range ordered {
			ordered[i] = fmt.Sprintf("o%04d", i)
		}
		y.emit("t", "", "k", ordered...)
		if got := listed(t, y.store.List(redistest.Soon(t), outbox.Pending, outbox.ListOptions{})); len(got) != len(plain)+1 || got[0] != plain[0] || !slices.IsSorted(got) {
			t.Errorf("%d pending", len(got))
		}
		if got := listed(t, y.store.List(redistest.Soon(t), outbox.Waiting, outbox.ListOptions{})); !slices.Equal(got, ordered[1:]) {
			t.Errorf("%d waiting", len(got))
		}
		for chunk := range slices.Chunk(plain, 650) {
			y.settle("parked", "", "odd", "no", chunk...)
		}
		var seen []string
		for e, err := range y.store.Parked(redistest.Soon(t), outbox.Filter{}) {
			redistest.Must(t, err)
			if seen = append(seen, e.ID); len(seen)%60 == 0 { // removes listed events, including the one that marks the page
				_, err := y.store.Discard(redistest.Soon(t), y.slot, "seen", seen[len(seen)-60:]...)
				redistest.Must(t, err)
			}
		}
		if !slices.Equal(seen, plain) {
			t.Errorf("listed %d of %d", len(seen), len(plain))
		}
	})
}

// TestFindPendingReturnsOnlyDueEventsByTime reads several shards and skips orphans and leased events, but not expired leases.
func TestFindPendingReturnsOnlyDueEventsByTime(t *testing.T) {
	t.Parallel()
	const leased = 10_000_000_000_000 // see internal/lua/_lease.lua
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		store := outbox.NewStore(tr)
		var want []string
		for i := range 40 {
			id, aggregate := fmt.Sprintf("e%02d", i), fmt.Sprint("a", i)
			redistest.Must(t, emit(tr, aggregate, id))
			key := link.Of(tr).Scripts.Shard(slotOf(t, tr, aggregate)).Key("pending")
			score := float64(1000 + 7*i%40)
			switch {
			case i == 39: // leased until an hour ago
				score = float64(time.Now().Add(-time.Hour).UnixMilli() - leased)
			case i == 38:
				score = float64(time.Now().Add(time.Hour).UnixMilli() - leased)
			case i >= 30:
				score = float64(time.Now().Add(time.Hour).UnixMilli())
			default:
				want = append(want, id)
			}
			redistest.Must(t, client.ZAdd(redistest.Soon(t), key, redis.Z{Score: score, Member: id}, redis.Z{Score: 1, Member: "orphan"}).Err())
		}
		slices.SortFunc(want, func(a, b string) int {
			at := func(id string) (n int) { _, _ = fmt.Sscanf(id, "e%d", &n); return 7 * n % 40 }
			return at(a) - at(b)
		})
		want = append(want, "e39")
		for _, limit := range []int{1, 7, 29, 30, 31, 100} {
			found, err := store.FindPending(redistest.Soon(t), limit)
			redistest.Must(t, err)
			var got []string
			for _, e := range found {
				if got = append(got, e.ID); e.State != outbox.Pending || e.Message.ID() != e.ID {
					t.Errorf("%+v", e)
				}
			}
			if first := want[:min(limit, len(want))]; !slices.Equal(got, first) {
				t.Errorf("limit %d: %v, want %v", limit, got, first)
			}
		}
		for _, limit := range []int{-1, 0, 10_001} {
			if _, err := store.FindPending(redistest.Soon(t), limit); err == nil || !strings.Contains(err.Error(), "use 1 to 10000") {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
	})
}

func TestAgeOfDueEventsIsMeasuredByTheServersClock(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	tr := newTransactor(t, client)
	store, start := outbox.NewStore(tr), time.Now().Truncate(time.Second)
	want := func(d time.Duration) {
		t.Helper()
		if got, err := store.Oldest(redistest.Soon(t)); err != nil || got != d {
			t.Errorf("%v, want %v; %v", got, d, err)
		}
	}
	want(0)
	server.SetTime(start)
	redistest.Must(t, emit(tr, "a", "1"))
	server.SetTime(start.Add(time.Minute))
	redistest.Must(t, emit(tr, "b", "2"))
	want(time.Minute)
	server.SetTime(start.Add(3 * time.Minute))
	want(3 * time.Minute)
	claimed(t, tr)
	want(0)
	server.SetTime(start.Add(time.Hour + 5*time.Minute))
	want(2 * time.Minute) // the leases have expired
}

// TestStoreFindsShardsOfOwnTags checks sums, listings and operations.
func TestStoreFindsShardsOfOwnTags(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		if testing.Short() {
			t.Skip("looks at 16,384 slots")
		}
		tr := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.OwnTags() })
		store := outbox.NewStore(tr).As("alice")
		var all []string
		for i := range 9 {
			aggregate := fmt.Sprint(tr.Config().Namespace, i)
			id := fmt.Sprint("e", i)
			redistest.Must(t, emit(tr, aggregate, id))
			n, err := store.Slot(aggregate)
			redistest.Must(t, err)
			settle(t, tr, n, time.Hour, "parked", id)
			all = append(all, id)
		}
		got := listed(t, store.Parked(redistest.Soon(t), outbox.Filter{}))
		if slices.Sort(got); !slices.Equal(got, all) {
			t.Errorf("parked: %v", got)
		}
		if view, err := store.Overview(redistest.Soon(t)); err != nil || view.Total != 9 {
			t.Errorf("%+v, %v", view, err)
		}
		result, err := store.RearmAll(redistest.Soon(t), outbox.Filter{}, outbox.RearmOptions{})
		if err != nil || result.Rearmed != 9 {
			t.Errorf("%+v, %v", result, err)
		}
		wantCounts(t, store, outbox.Counts{Pending: 9})
		records := 0
		for r, err := range store.Audit(redistest.Soon(t), time.Time{}) {
			redistest.Must(t, err)
			if records++; r.Operation != result.Operation || r.Call != records {
				t.Errorf("%+v", r)
			}
		}
		if records != 9 {
			t.Errorf("%d records", records)
		}
	})
}

func TestServerFailureIsAStorageErrorWithOperationAndSlot(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	y := newYard(t, client)
	for _, name := range []string{"entries", "pending", "parked", "sent", "counts", "parked:by", "audit", "lanes"} {
		redistest.Must(t, client.Set(redistest.Soon(t), link.Of(y.tr).Scripts.Shard(y.slot).Key(name), "of another type", 0).Err())
	}
	last := func(events iter.Seq2[outbox.Event, error]) (err error) {
		for _, err = range events {
		}
		return err
	}
	ctx := redistest.Soon(t)
	for op, err := range map[string]error{
		"counts":              second(y.store.Counts(ctx)),
		"overview":            second(y.store.Overview(ctx)),
		"oldest":              second(y.store.Oldest(ctx)),
		"find pending events": second(y.store.FindPending(ctx, 1)),
		"list parked events":  last(y.store.Parked(ctx, outbox.Filter{})),
		"list blocked keys":   last(y.store.Blocked(ctx, outbox.Filter{})),
		"list sent events":    last(y.store.List(ctx, outbox.Sent, outbox.ListOptions{})),
		"show":                second(y.store.Show(ctx, y.slot, "1")),
		"claim":               second(y.store.Claim(ctx, y.slot, outbox.Work{})),
		"settle":              second(y.store.Sent(ctx, y.slot, outbox.Work{}, "1")),
		"re-arm":              second(y.store.Rearm(ctx, y.slot, "1")),
		"discard":             second(y.store.Discard(ctx, y.slot, "why", "1")),
		"park":                second(y.store.Change(ctx, y.slot, outbox.Change{Act: outbox.ActPark, Reason: "why"}, "1")),
		"erase":               second(y.store.Erase(ctx, y.slot, "why", "1")),
		"replay":              second(y.store.Replay(ctx, time.Time{}, outbox.Filter{}, outbox.ReplayOptions{})),
		"import":              second(y.store.Import(ctx, strings.NewReader(fmt.Sprintf(`{"id":"1","slot":%d,"body":1}`, y.slot)))),
	} {
		var failed *outbox.StorageError
		if !errors.As(err, &failed) || failed.Op != op || failed.Slot != y.slot {
			t.Errorf("%s: %#v: %v", op, failed, err)
			continue
		}
		if !strings.Contains(err.Error(), "WRONGTYPE") || !redis.HasErrorPrefix(failed.Err, "WRONGTYPE") && !strings.Contains(failed.Err.Error(), "script") {
			t.Errorf("%s: %v", op, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestOlderThanSelectsNoWaitingEvent(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	y.everyState()
	for _, f := range []outbox.Filter{{OlderThan: time.Hour}, {OlderThan: time.Hour, IDs: []string{"second", "third"}}} {
		if got := listed(t, y.store.List(redistest.Soon(t), outbox.Waiting, outbox.ListOptions{Filter: f})); len(got) > 0 {
			t.Errorf("%+v lists %v", f, got)
		}
		result, err := y.store.ChangeAll(redistest.Soon(t), outbox.Waiting, f, outbox.Change{Act: outbox.ActDiscard, Reason: "old"}, outbox.ChangeOptions{})
		if err != nil || result.Matched > 0 {
			t.Errorf("%+v: %+v, %v", f, result, err)
		}
	}
}

func TestFilterThatRepeatsAnIDSelectsItsEventOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	y.everyState()
	f := outbox.Filter{IDs: []string{"parked", "nobody", "parked"}}
	choice, err := acts.Choose(redistest.Soon(t), y.store, outbox.Parked, f)
	if err != nil || len(choice.Events) != 1 || !slices.Equal(choice.Missing, []string{"nobody"}) {
		t.Errorf("chosen: %+v, %v", choice, err)
	}
	result, err := y.store.RearmAll(redistest.Soon(t), f, outbox.RearmOptions{})
	if err != nil || result.Matched != 1 || result.Rearmed != 1 || len(result.Skipped) > 0 {
		t.Errorf("re-armed: %+v, %v", result, err)
	}
}
