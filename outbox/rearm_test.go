package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// classified is an error with a class.
type classified struct{ class string }

func (c classified) Error() string { return "refused as " + c.class }
func (c classified) Class() string { return c.class }

// market is a Publisher that rejects the events of one type permanently, with a class, until it is mended.
type market struct {
	refused atomic.Pointer[string]
	sold    atomic.Int64
	to      atomic.Pointer[string] // the last destination
}

func (m *market) Publish(_ context.Context, events []*message.RawMessage) []error {
	errs := make([]error, len(events))
	for i, e := range events {
		if refused := m.refused.Load(); refused != nil && e.Type() == *refused {
			errs[i] = message.Permanent(classified{"http_422"})
			continue
		}
		to := e.Destination()
		m.to.Store(&to)
		m.sold.Add(1)
	}
	return errs
}

// publish runs a relay until the test ends.
func publish(t testing.TB, tr *luatx.Transactor, to relay.Publisher, cfg relay.Config) {
	t.Helper()
	cfg.SweepInterval = 20 * time.Millisecond
	r, err := relay.New(tr, to, cfg)
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestListAndRearmApplyEachFieldOfAFilter(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("sold", "shop", "", "1", "2")
		y.emit("sold", "bank", "", "3")
		y.emit("paid", "bank", "k", "4")
		y.emit("paid", "bank", "l", "5")
		y.park("odd", "1", "3", "4")
		y.park("even", "2", "5")
		old := client.ZAdd(redistest.Soon(t), link.Of(y.tr).Scripts.Shard(y.slot).Key("parked"),
			redis.Z{Score: float64(time.Now().Add(-time.Hour).UnixMilli()), Member: "2"}, redis.Z{Score: float64(time.Now().Add(-2 * time.Hour).UnixMilli()), Member: "4"})
		redistest.Must(t, old.Err())
		for _, c := range []struct {
			filter outbox.Filter
			want   string
			text   string
		}{
			{outbox.Filter{}, "1 2 3 4 5", "all"},
			{outbox.Filter{Type: "sold"}, "1 2 3", `type="sold"`},
			{outbox.Filter{Destination: "bank"}, "3 4 5", `destination="bank"`},
			{outbox.Filter{Class: "odd"}, "1 3 4", `class="odd"`},
			{outbox.Filter{Text: ": ev"}, "2 5", `text=": ev"`},
			{outbox.Filter{Key: "k"}, "4", `key="k"`},
			{outbox.Filter{OlderThan: 30 * time.Minute}, "2 4", "older than 30m0s"},
			{outbox.Filter{IDs: []string{"2", "5", "9"}}, "2 5", "3 ids"},
			{outbox.Filter{IDs: []string{"2", "5"}, OlderThan: time.Minute}, "2", "2 ids older than 1m0s"},
			{outbox.Filter{Events: []outbox.EventName{{y.slot, "2"}, {y.slot, "5"}, {y.slot, "2"}, {y.slot + 1, "1"}}}, "2 5", "4 events by slot and id"},
			{outbox.Filter{Events: []outbox.EventName{{y.slot, "2"}, {y.slot, "5"}}, IDs: []string{"5"}, Aggregate: "a", Slots: []int{y.slot}}, "5", fmt.Sprintf("slots=[%d] aggregate=\"a\" 1 ids 2 events by slot and id", y.slot)},
			{outbox.Filter{Slots: []int{y.slot}}, "1 2 3 4 5", fmt.Sprintf("slots=[%d]", y.slot)},
			{outbox.Filter{Slots: []int{y.slot + 1}}, "", fmt.Sprintf("slots=[%d]", y.slot+1)},
			{outbox.Filter{Aggregate: "a"}, "1 2 3 4 5", `aggregate="a"`},
			{outbox.Filter{Aggregate: "a", Type: "paid", Class: "odd", Destination: "bank"}, "4", `aggregate="a" destination="bank" type="paid" class="odd"`},
		} {
			got := listed(t, y.store.Parked(redistest.Soon(t), c.filter))
			if slices.Sort(got); strings.Join(got, " ") != c.want {
				t.Errorf("%v: %v, want %s", c.filter, got, c.want)
			}
			result, err := y.store.RearmAll(redistest.Soon(t), c.filter, outbox.RearmOptions{DryRun: true})
			if err != nil || result.Matched != len(strings.Fields(c.want)) || result.Rearmed != 0 {
				t.Errorf("%v: a dry run: %+v, %v", c.filter, result, err)
			}
			if !sameFields(c.filter.String(), c.text) {
				t.Errorf("%q, want %q", c.filter, c.text)
			}
		}
		for _, bad := range []outbox.Filter{{Slots: []int{-1}}, {Slots: []int{16384}}, {Slots: []int{y.slot + 1}, Aggregate: "a"}, {Events: []outbox.EventName{{16384, "1"}}}, {Events: []outbox.EventName{{y.slot + 1, "1"}}, Aggregate: "a"}, {Aggregate: strings.Repeat("x", 257)}} {
			if _, err := y.store.RearmAll(redistest.Soon(t), bad, outbox.RearmOptions{}); err == nil {
				t.Errorf("%+v is taken", bad)
			}
			for name, list := range map[string]iter.Seq2[outbox.Event, error]{
				"parked":  y.store.Parked(redistest.Soon(t), bad),
				"blocked": y.store.Blocked(redistest.Soon(t), bad),
				"sent":    y.store.List(redistest.Soon(t), outbox.Sent, outbox.ListOptions{Filter: bad}),
			} {
				failures := 0
				for e, err := range list {
					if failures++; err == nil || e.ID != "" {
						t.Errorf("%s: %+v is taken", name, bad)
					}
				}
				if failures != 1 {
					t.Errorf("%s: %d errors about %+v", name, failures, bad)
				}
			}
		}
		for _, bad := range []outbox.RearmOptions{{Limit: -1}, {Canary: -1}, {Canary: 1001}, {Rate: -1}, {CanaryWait: -1}, {Destination: "a\nb"}} {
			if _, err := y.store.RearmAll(redistest.Soon(t), outbox.Filter{}, bad); err == nil || !strings.Contains(err.Error(), "RearmOptions.") {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if records := y.audit(); len(records) > 0 {
			t.Errorf("dry runs are recorded: %v", records)
		}
		result, err := y.store.RearmAll(redistest.Soon(t), outbox.Filter{Type: "paid"}, outbox.RearmOptions{})
		if err != nil || result.Rearmed != 2 || result.Stopped != "" {
			t.Errorf("%+v, %v", result, err)
		}
		y.want("4", outbox.Pending)
		y.want("5", outbox.Pending)
		if records := y.audit(); len(records) != 1 || records[0].Why != `type="paid"` || records[0].Operation != result.Operation || records[0].Done != 2 {
			t.Errorf("recorded %v", records)
		}
		y.overview()
	})
}

// sameFields reports whether two texts have the same words.
func sameFields(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func TestRearmIgnoresEventsParkedAfterItBegan(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "1", "2", "3")
		y.park("odd", "1", "2")
		scripts := link.Of(y.tr).Scripts
		edges, err := scripts.LastParked(redistest.Soon(t), []int{y.slot})
		redistest.Must(t, err)
		redistest.Eventually(t, "a millisecond to pass", func() bool { return time.Since(edges[0].At) > 5*time.Millisecond })
		y.park("odd", "3")
		rearm := func(call int, want string) {
			t.Helper()
			letters, err := scripts.Rearm(redistest.Soon(t), scripts.Shard(y.slot), shard.Act{Operation: "op", Call: call}, edges[0].At, "", []string{"1", "2", "3"})
			if err != nil || letters != want {
				t.Errorf("%q, want %q; %v", letters, want, err)
			}
		}
		rearm(1, "ddn")
		y.park("odd", "2")
		rearm(2, "wnn")
		y.want("1", outbox.Pending)
		y.want("3", outbox.Parked)
	})
}

func TestRearmLeavesOutEventsParkedAfterBefore(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "1", "2", "3", "4")
		y.park("odd", "1", "2", "3", "4")
		before := time.UnixMilli(time.Now().UnixMilli()).Add(-time.Hour)
		for id, at := range map[string]time.Time{"1": before.Add(-time.Minute), "2": before, "3": before.Add(time.Millisecond)} {
			redistest.Must(t, client.ZAdd(redistest.Soon(t), link.Of(y.tr).Scripts.Shard(y.slot).Key("parked"), redis.Z{Score: float64(at.UnixMilli()), Member: id}).Err())
		}
		for _, c := range []struct {
			filter  outbox.Filter
			dryRun  bool
			matched int
		}{
			{outbox.Filter{}, true, 2},
			{outbox.Filter{IDs: []string{"2", "3"}}, true, 1},
			{outbox.Filter{OlderThan: time.Second}, true, 1}, // at the time of the preview, not now
			{outbox.Filter{OlderThan: time.Minute}, true, 1},
			{outbox.Filter{OlderThan: 2 * time.Minute}, true, 0},
			{outbox.Filter{}, false, 2},
		} {
			result, err := y.store.RearmAll(redistest.Soon(t), c.filter, outbox.RearmOptions{Before: before, DryRun: c.dryRun})
			if err != nil || result.Matched != c.matched {
				t.Errorf("%v: result = %+v, err = %v, want %d matches", c.filter, result, err, c.matched)
			}
		}
		for id, state := range map[string]outbox.State{"1": outbox.Pending, "2": outbox.Pending, "3": outbox.Parked, "4": outbox.Parked} {
			y.want(id, state)
		}
	})
}

// TestEventThatParksAgainIsRearmedOnce runs a relay, which parks the event again at once.
func TestEventThatParksAgainIsRearmedOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		many := numbered(3000)
		for chunk := range slices.Chunk(many, 500) {
			y.emit("bad", "", "", chunk...)
			y.settle("parked", "", "odd", "no", chunk...)
		}
		m, bad := &market{}, "bad"
		m.refused.Store(&bad)
		publish(t, y.tr, m, relay.Config{})
		result, err := y.store.RearmAll(redistest.Soon(t), outbox.Filter{}, outbox.RearmOptions{MaxParkedAgain: -1})
		if err != nil || result.Rearmed != len(many) || result.Matched != len(many) {
			t.Errorf("%+v, %v", result, err)
		}
		redistest.Eventually(t, "all to be parked again", func() bool { return y.counts().Parked == int64(len(many)) })
		if c := y.counts(); c.Totals.Parked != int64(2*len(many)) {
			t.Errorf("%+v", c)
		}
		if view := y.overview(); view.ByClass["http_422"] != int64(len(many)) {
			t.Errorf("%+v", view)
		}
	})
}

func TestRearmedEventIsSentOnceToTheOperatorsDestination(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "here", "", "1")
		y.park("odd", "1")
		result, err := y.store.RearmAll(redistest.Soon(t), outbox.Filter{IDs: []string{"1"}}, outbox.RearmOptions{Destination: "there"})
		if err != nil || result.Rearmed != 1 {
			t.Errorf("%+v, %v", result, err)
		}
		if e := y.want("1", outbox.Pending); e.Destination != "there" || e.Message.Destination() != "here" {
			t.Errorf("%+v", e)
		}
		for destination, want := range map[string][]string{"here": {"1"}, "there": {}} { // a filter means that of the body
			got := listed(t, y.store.List(redistest.Soon(t), outbox.Pending, outbox.ListOptions{Filter: outbox.Filter{Destination: destination}}))
			y.same(got, want...)
		}
		m := &market{}
		publish(t, y.tr, m, relay.Config{})
		redistest.Eventually(t, "the event to be sent", func() bool { return m.sold.Load() == 1 })
		if to := *m.to.Load(); to != "there" {
			t.Errorf("published to %q", to)
		}
		redistest.Eventually(t, "the event to be settled", func() bool { return y.counts().Sent == 1 })
		if n := client.Exists(redistest.Soon(t), link.Of(y.tr).Scripts.Shard(y.slot).Key("routes")).Val(); n != 0 {
			t.Error("the route has stayed")
		}
	})
}

// TestRearmedEventsOfALaneArePublishedInOrder re-arms them in another order.
func TestRearmedEventsOfALaneArePublishedInOrder(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		for _, id := range []string{"1", "2", "3", "4"} {
			line := fmt.Sprintf(`{"aggregate":"a","id":%q,"key":"k","body":{"id":%q,"type":"t","source":"/s"}}`, id, id)
			result, err := y.store.Import(redistest.Soon(t), strings.NewReader(line))
			if err != nil || result.Imported != 1 {
				t.Fatalf("%+v, %v", result, err)
			}
		}
		var sent []string
		for _, id := range []string{"4", "2", "1", "3"} {
			got, err := y.store.Rearm(redistest.Soon(t), y.slot, id)
			wantAnswers(t, got, err, outbox.Done)
			for {
				lease, due := y.claim(time.Hour)
				if len(due) == 0 {
					break
				}
				y.settle("sent", lease, "", "", due...)
				sent = append(sent, due...)
			}
		}
		if !slices.Equal(sent, []string{"1", "2", "3", "4"}) {
			t.Errorf("sent %v", sent)
		}
	})
}

func TestRearmNeverExceedsTheCapacityOfAShard(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client, func(c *luatx.Config) { c.OutboxCapacity = 5 })
		y.emit("t", "", "", "1", "2", "3")
		y.park("odd", "1", "2", "3")
		y.emit("t", "", "", "4", "5", "6")
		result, err := y.store.RearmAll(redistest.Soon(t), outbox.Filter{}, outbox.RearmOptions{})
		if err != nil || result.Rearmed != 2 || result.Stopped != outbox.StoppedFull || result.Skipped[outbox.Full] != 1 {
			t.Errorf("%+v, %v", result, err)
		}
		if c := y.counts(); c.Pending != 5 || c.Parked != 1 {
			t.Errorf("%+v", c)
		}
		if err := emit(y.tr, "a", "7"); !errors.Is(err, luatx.ErrOutboxFull) {
			t.Error(err)
		}
	})
}

func TestNextEventOfALaneIsLeasedWithTheOperatorsDestination(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y, ctx := newYard(t, client), redistest.Soon(t)
		y.emit("t", "here", "k", "1", "2")
		y.park("odd", "1")
		answers, err := y.store.Change(ctx, y.slot, outbox.Change{Act: outbox.ActPark, Reason: "why"}, "2")
		wantAnswers(t, answers, err, outbox.Done)
		result, err := y.store.RearmAll(ctx, outbox.Filter{}, outbox.RearmOptions{Destination: "there"})
		if err != nil || result.Rearmed != 2 {
			t.Errorf("%+v, %v", result, err)
		}
		y.want("2", outbox.Waiting)
		scripts := link.Of(y.tr).Scripts
		settled, err := scripts.Settle(ctx, scripts.Shard(y.slot), shard.Settling{Attempts: 10, Retention: time.Hour, Lease: time.Hour}, []shard.Settlement{{ID: "1", What: "sent"}})
		redistest.Must(t, err)
		if p := settled.Promoted; len(p) != 1 || p[0].ID != "2" || p[0].Route != "there" {
			t.Errorf("leased %+v", p)
		}
	})
}
