package outbox_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

// blockedOf are the parked events that hold back others, as "id:number".
func (y yard) blockedOf(f outbox.Filter) []string {
	y.t.Helper()
	all := []string{}
	for e, err := range y.store.Blocked(redistest.Soon(y.t), f) {
		redistest.Must(y.t, err)
		if e.State != outbox.Parked || e.Key == "" || e.At.IsZero() || e.Behind != "" {
			y.t.Errorf("%+v", e)
		}
		all = append(all, fmt.Sprint(e.ID, ":", e.HoldsBack))
	}
	return all
}

func TestBlockedListsParkedHeadsWithTheNumberOfEventsBehind(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.same(y.blockedOf(outbox.Filter{}))
		y.emit("t", "d", "", "plain")
		y.emit("t", "d", "a", "a1", "a2", "a3")
		y.emit("t", "d", "a\x00%", "b1", "b2")
		y.emit("t", "d", "alone", "c1")
		y.emit("t", "e", "moves", "d1", "d2")
		y.park("odd", "plain")
		y.same(y.blockedOf(outbox.Filter{Class: "odd"}))
		y.park("odd", "b1")
		y.park("even", "a1")
		y.park("odd", "c1")
		y.same(y.blockedOf(outbox.Filter{Key: "a"}), "a1:2")
		y.same(y.blockedOf(outbox.Filter{Class: "odd", Destination: "d", Slots: []int{y.slot}}), "b1:1")
		y.same(y.blockedOf(outbox.Filter{IDs: []string{"a1", "d1"}}), "a1:2")
		y.same(y.blockedOf(outbox.Filter{OlderThan: time.Hour}))
		got := y.blockedOf(outbox.Filter{})
		slices.Sort(got) // the two may have been parked in the same millisecond
		y.same(got, "a1:2", "b1:1")
		if e := y.want("a3", outbox.Waiting); e.Behind != "a1" || e.HoldsBack != 0 {
			t.Errorf("%+v", e)
		}
		if e := y.want("d1", outbox.Pending); e.Behind != "" || e.HoldsBack != 1 {
			t.Errorf("%+v", e)
		}
		if e := y.want("plain", outbox.Parked); e.Behind != "" || e.HoldsBack != 0 {
			t.Errorf("%+v", e)
		}
		_, err := y.store.Rearm(redistest.Soon(t), y.slot, "a1")
		redistest.Must(t, err)
		_, err = y.store.Discard(redistest.Soon(t), y.slot, "why", "b1")
		redistest.Must(t, err)
		y.same(y.blockedOf(outbox.Filter{}))
	})
}

// same compares lists.
func (y yard) same(got []string, want ...string) {
	y.t.Helper()
	if !slices.Equal(got, want) {
		y.t.Errorf("%v, want %v", got, want)
	}
}

func TestBlockedMergesShardsByTimeAndReadsPages(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		store := outbox.NewStore(tr).As("alice")
		var lines strings.Builder
		var want []string
		for i := range 250 { // plain ones first, so that the first page of each shard holds none that blocks
			fmt.Fprintf(&lines, `{"aggregate":%q,"id":"p%03d","state":"parked","at":"2024-01-01T00:00:00Z","body":{"id":"x","source":"/s","type":"t"}}`+"\n", fmt.Sprint("a", i%4), i)
		}
		for i := range 250 {
			for _, id := range []string{"h", "w"} {
				fmt.Fprintf(&lines, `{"aggregate":%q,"id":"%s%03d","state":"parked","key":"k%d","at":%q,"body":{"id":"x","source":"/s","type":"t"}}`+"\n",
					fmt.Sprint("a", i%4), id, i, i, time.Date(2024, 2, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339))
			}
			want = append(want, fmt.Sprintf("h%03d", i))
		}
		_, err := store.Import(redistest.Soon(t), strings.NewReader(lines.String()))
		redistest.Must(t, err)
		if got := listed(t, store.Blocked(redistest.Soon(t), outbox.Filter{})); !slices.Equal(got, want) {
			t.Errorf("%d: %v", len(got), got)
		}
		for _, place := range []int{0, 117, 249} {
			var f outbox.Filter
			for e, err := range store.Blocked(redistest.Soon(t), outbox.Filter{IDs: []string{want[place]}}) {
				redistest.Must(t, err)
				link.Continue(&f, e.Slot, e.At, e.ID)
			}
			if got := listed(t, store.Blocked(redistest.Soon(t), f)); !slices.Equal(got, want[place+1:]) {
				t.Errorf("behind %s: %d: %v", want[place], len(got), got)
			}
		}
		for e, err := range store.Blocked(redistest.Soon(t), outbox.Filter{}) {
			redistest.Must(t, err)
			if e.HoldsBack != 1 || e.ID != want[0] {
				t.Errorf("%+v", e)
			}
			break
		}
	})
}

func TestBlockedListsAnEventThatCannotBeDecodedWithAnError(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	y.enqueue(shard.Event{ID: "1", Body: []byte("no message"), Key: "j"})
	y.enqueue(shard.Event{ID: "behind 1", Body: []byte("{}"), Key: "j"})
	y.emit("t", "", "k", "2", "behind 2")
	y.settle("parked", "", "odd", "no", "1", "2") // at the same time, so ordered by id
	var got []string
	for e, err := range y.store.Blocked(redistest.Soon(t), outbox.Filter{}) {
		got = append(got, fmt.Sprint(e.ID, ":", e.HoldsBack, " ", err != nil))
	}
	y.same(got, "1:1 true", "2:1 false")
}

func TestBlockedThatPausesContinuesWithEventsOfOtherShards(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		store := outbox.NewStore(newTransactor(t, client)).As("alice")
		var lines strings.Builder
		add := func(aggregate, id, kind string, second, size int) {
			for _, id := range []string{id, id + " behind"} {
				fmt.Fprintf(&lines, `{"aggregate":%q,"id":%q,"state":"parked","key":%q,"at":%q,"body":{"id":"x","source":"/s","type":%q,"data":%q}}`+"\n",
					aggregate, id, aggregate+id[:2], time.Date(2024, 2, 1, 0, 0, second, 0, time.UTC).Format(time.RFC3339), kind, strings.Repeat("x", size))
				size = 1
			}
		}
		for _, aggregate := range []string{"a1", "a2"} { // large bodies, so that a page ends among events that do not match
			number := int(aggregate[1] - '0')
			add(aggregate, "h0", "t", number, 1)
			for i := range 3 {
				add(aggregate, fmt.Sprint("o", i), "other", 10+i, 600_000)
			}
			add(aggregate, "h9", "t", 20+number, 1)
		}
		_, err := store.Import(redistest.Soon(t), strings.NewReader(lines.String()))
		redistest.Must(t, err)
		want := listed(t, store.Blocked(redistest.Soon(t), outbox.Filter{Type: "t"}))
		if len(want) != 4 {
			t.Fatal(want)
		}
		var got []string
		f := outbox.Filter{Type: "t"}
		for pages, more := 0, true; more && pages < 100; pages++ {
			more = false
			link.Bound(&f, 1)
			for e, err := range store.Blocked(redistest.Soon(t), f) {
				if pause, ok := errors.AsType[*link.PauseError](err); ok {
					ms, err := strconv.ParseInt(pause.Place.Score, 10, 64)
					redistest.Must(t, err)
					f, more = outbox.Filter{Type: "t"}, true
					link.Continue(&f, pause.Slot, time.UnixMilli(ms), pause.Place.Member)
					break
				}
				redistest.Must(t, err)
				got = append(got, e.ID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
