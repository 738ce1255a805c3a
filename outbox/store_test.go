package outbox_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/outbox"
)

func onePartition(c *luatx.Config) { c.Keyspace = luatx.Partitions(1).WithPrefix(c.Namespace) }

// settle settles events of one shard without a lease.
func settle(t testing.TB, tr *luatx.Transactor, slot int, retention time.Duration, what string, ids ...string) {
	t.Helper()
	batch := make([]shard.Settlement, len(ids))
	for i, id := range ids {
		batch[i] = shard.Settlement{ID: id, What: what, Error: "refused " + id}
	}
	how := shard.Settling{Attempts: 10, Base: time.Second, Cap: time.Minute, Retention: retention}
	settled, err := link.Of(tr).Scripts.Settle(redistest.Soon(t), link.Of(tr).Scripts.Shard(slot), how, batch)
	redistest.Must(t, err)
	for i, d := range settled.Done {
		if d != what {
			t.Errorf("%s: %s instead of %s", ids[i], d, what)
		}
	}
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("e%04d", i)
	}
	return ids
}

func wantCounts(t testing.TB, store *outbox.Store, want outbox.Counts) {
	t.Helper()
	got, err := store.Counts(redistest.Soon(t))
	if got.Bytes, got.Totals = 0, (outbox.Totals{}); err != nil || got != want {
		t.Errorf("%+v, want %+v; %v", got, want, err)
	}
}

func TestCountsOfEveryShardAreByState(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		store := outbox.NewStore(tr)
		wantCounts(t, store, outbox.Counts{})
		slots := make(map[int]int) // number of events by shard
		for i := range 20 {
			aggregate := fmt.Sprint("a", i)
			redistest.Must(t, emit(tr, aggregate, aggregate+"-1", aggregate+"-2"))
			slots[slotOf(t, tr, aggregate)] += 2
		}
		if len(slots) != 4 {
			t.Fatalf("the aggregates live in %d shards", len(slots))
		}
		wantCounts(t, store, outbox.Counts{Pending: 40})
		first := slotOf(t, tr, "a0")
		settle(t, tr, first, time.Hour, "sent", "a0-1")
		settle(t, tr, first, time.Hour, "parked", "a0-2")
		wantCounts(t, store, outbox.Counts{Pending: 38, Parked: 1, Sent: 1})
		claimed(t, tr)
		wantCounts(t, store, outbox.Counts{Pending: 38, Leased: 38, Parked: 1, Sent: 1})
	})
}

func slotOf(t testing.TB, tr *luatx.Transactor, aggregate string) int {
	t.Helper()
	tag, err := tr.Keyspace().Tag(aggregate)
	redistest.Must(t, err)
	return tr.Keyspace().Slots()[slices.Index(tr.Keyspace().Tags(), tag)]
}

func TestParkedListsEachEventOnceOverPagesAndShards(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		many, slot := numbered(250), slotOf(t, tr, "a")
		redistest.Must(t, emit(tr, "a", many...))
		settle(t, tr, slot, time.Hour, "parked", many...)
		var other int
		for i := 0; other == 0 || other == slot; i++ {
			other = slotOf(t, tr, fmt.Sprint("b", i))
			if other != slot {
				redistest.Must(t, emit(tr, fmt.Sprint("b", i), "elsewhere", "waiting"))
			}
		}
		settle(t, tr, other, time.Hour, "parked", "elsewhere")

		seen := make(map[string]bool)
		for p, err := range outbox.NewStore(tr).Parked(redistest.Soon(t), outbox.Filter{}) {
			redistest.Must(t, err)
			in := slot
			if p.ID == "elsewhere" {
				in = other
			}
			if seen[p.ID] || p.Slot != in || p.Message.ID() != p.ID || p.Error != "refused "+p.ID || p.At.IsZero() {
				t.Errorf("%+v, seen before: %t", p, seen[p.ID])
			}
			seen[p.ID] = true
		}
		if len(seen) != len(many)+1 {
			t.Errorf("%d events listed, want %d", len(seen), len(many)+1)
		}
		slots := []int{slot, other}
		slices.Sort(slots)
		var order []int
		for p, err := range outbox.NewStore(tr).Parked(redistest.Soon(t), outbox.Filter{Slots: []int{slots[1], slots[0]}}) {
			redistest.Must(t, err)
			order = append(order, p.Slot)
		}
		if got := slices.Compact(order); !slices.Equal(got, slots) {
			t.Errorf("listed slot %v after the other, want %v", got, slots)
		}
	})
}

func TestParkedReadsNoPageAfterItsReaderStops(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	tr := newTransactor(t, redistest.Client(t, proxy.Addr()), onePartition)
	ids := numbered(210)
	redistest.Must(t, emit(tr, "a", ids...))
	settle(t, tr, slotOf(t, tr, "a"), time.Hour, "parked", ids...)
	for _, err := range outbox.NewStore(tr).Parked(redistest.Soon(t), outbox.Filter{}) {
		redistest.Must(t, err)
		break // loads the script
	}
	for _, c := range []struct{ take, pages int }{{1, 1}, {100, 1}, {101, 2}, {210, 3}} {
		before, taken := proxy.Count("EVALSHA"), []string(nil)
		for p, err := range outbox.NewStore(tr).Parked(redistest.Soon(t), outbox.Filter{}) {
			redistest.Must(t, err)
			if taken = append(taken, p.ID); len(taken) == c.take {
				break
			}
		}
		if !slices.Equal(taken, ids[:c.take]) { // parked at the same time, so ordered by id
			t.Errorf("%d events to be read, read %v", c.take, taken)
		}
		if pages := proxy.Count("EVALSHA") - before; pages != c.pages {
			t.Errorf("%d pages were read for %d events, want %d", pages, c.take, c.pages)
		}
	}
}

// TestParkedSkipsAnEventThatCannotBeDecoded also checks that the listing ends with an error if the server does not reply.
func TestParkedSkipsAnEventThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	client := redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.MaxRetries = -1 })
	tr := newTransactor(t, client, onePartition)
	store, slot := outbox.NewStore(tr), slotOf(t, tr, "a")
	redistest.Must(t, emit(tr, "a", "1", "3"))
	inside := link.Of(tr)
	_, err := inside.Commits.Enqueue(redistest.Soon(t), inside.Scripts.Shard(slot), []shard.Event{{ID: "2", Body: []byte("no message")}})
	redistest.Must(t, err)
	settle(t, tr, slot, time.Hour, "parked", "1", "2", "3")
	var list []string
	for p, err := range store.Parked(redistest.Soon(t), outbox.Filter{}) {
		if (err != nil) != (p.ID == "2") || (p.Message == nil) != (p.ID == "2") {
			t.Errorf("%+v: %v", p, err)
		}
		list = append(list, p.ID)
	}
	if !slices.Equal(list, []string{"1", "2", "3"}) {
		t.Errorf("listed %v", list)
	}
	proxy.Next(1, respproxy.Command("ZRANGE"), respproxy.CutReply())
	turns := 0
	for p, err := range store.Parked(redistest.Soon(t), outbox.Filter{}) {
		if turns++; err == nil || p.ID != "" || !strings.HasPrefix(err.Error(), fmt.Sprintf("outbox: list parked events of slot %d: ", slot)) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if turns != 1 {
		t.Errorf("%d turns after an error", turns)
	}
}

// TestSentIDIsRememberedForTheRetention checks it to the millisecond: another event with the id is rejected, and the same event
// is a duplicate.
func TestSentIDIsRememberedForTheRetention(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	tr := newTransactor(t, client, onePartition, func(c *luatx.Config) { c.Retention = 1000 * time.Hour })
	store, slot := outbox.NewStore(tr), slotOf(t, tr, "a")
	const retention = time.Hour
	start := time.Now().Truncate(time.Second)
	at := func(d time.Duration) { server.SetTime(start.Add(d)) }
	another := func() error {
		_, err := tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{ID: "1", Body: []byte(`{"id":"1","data":"another"}`)})
		})
		return err
	}
	at(0)
	redistest.Must(t, emit(tr, "a", "1", "2", "3"))
	settle(t, tr, slot, retention, "sent", "1")
	at(retention - time.Millisecond)
	settle(t, tr, slot, retention, "sent", "2")
	wantCounts(t, store, outbox.Counts{Pending: 1, Sent: 2})
	if failed := new(luatx.CommandError); !errors.As(another(), &failed) || failed.Text != "the event exists with another body" {
		t.Errorf("another event under the id of a sent one: %v", failed)
	}
	redistest.Must(t, emit(tr, "a", "1"))
	wantCounts(t, store, outbox.Counts{Pending: 1, Sent: 2})
	at(retention)
	settle(t, tr, slot, retention, "sent", "3")
	wantCounts(t, store, outbox.Counts{Sent: 2})
	redistest.Must(t, another())
	wantCounts(t, store, outbox.Counts{Pending: 1, Sent: 2})
}

// TestFullOutboxRejectsATransactionWithEvents also checks that it accepts one without events, and has room again after events
// were sent or parked.
func TestFullOutboxRejectsATransactionWithEvents(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client, onePartition, func(c *luatx.Config) { c.OutboxCapacity = 3 })
		store, slot := outbox.NewStore(tr), slotOf(t, tr, "a")
		key, err := tr.Keyspace().Key("a", "n")
		redistest.Must(t, err)
		write := func(ids ...string) error {
			_, err := tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
				for _, id := range ids {
					if err := tx.Emit(luatx.Event{ID: id, Body: []byte(`{"id":"` + id + `"}`)}); err != nil {
						return err
					}
				}
				return luatx.Queued(tx.Pipeline().Incr(redistest.Soon(t), key))
			})
			return err
		}
		redistest.Must(t, write("1", "2"))
		if err := write("3", "4"); !errors.Is(err, luatx.ErrOutboxFull) {
			t.Errorf("two events into the last place: %v", err)
		}
		redistest.Must(t, write("3"))
		if err := write("4"); !errors.Is(err, luatx.ErrOutboxFull) {
			t.Errorf("a full outbox: %v", err)
		}
		redistest.Must(t, write())
		wantCounts(t, store, outbox.Counts{Pending: 3})
		settle(t, tr, slot, time.Hour, "sent", "1")
		settle(t, tr, slot, time.Hour, "parked", "2")
		redistest.Must(t, write("4", "5"))
		wantCounts(t, store, outbox.Counts{Pending: 3, Parked: 1, Sent: 1})
		if got := client.Get(redistest.Soon(t), key).Val(); got != "4" {
			t.Errorf("%s transactions were committed, want 4", got)
		}
	})
}
