package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
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

// ordered returns events with the same ordering key.
func ordered(key string, ids ...string) []luatx.Event {
	events := make([]luatx.Event, len(ids))
	for i, id := range ids {
		events[i] = luatx.Event{ID: id, Key: key, Body: body(id)}
	}
	return events
}

func body(id string) []byte {
	return fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"t","data":1}`, id)
}

// commit commits events in one transaction.
func commit(t testing.TB, tr *luatx.Transactor, aggregate string, events ...luatx.Event) {
	t.Helper()
	_, err := tr.Transact(redistest.Soon(t), aggregate, func(tx *luatx.Tx) error {
		for _, event := range events {
			if err := tx.Emit(event); err != nil {
				return err
			}
		}
		return nil
	})
	redistest.Must(t, err)
}

// emit commits one transaction with events of the given ids, without ordering keys.
func emit(t testing.TB, tr *luatx.Transactor, aggregate string, ids ...string) {
	t.Helper()
	commit(t, tr, aggregate, ordered("", ids...)...)
}

func names(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return ids
}

// scriptCounter counts the scripts that a client runs by name, and its pipelines by their first command and the kind of its
// key.
type scriptCounter struct {
	names map[string]string
	mu    sync.Mutex
	runs  map[string]int
}

func countScripts(client redis.UniversalClient, tr *luatx.Transactor) *scriptCounter {
	c := &scriptCounter{names: make(map[string]string), runs: make(map[string]int)}
	for name, sha := range link.Of(tr).Runner.SHAs() {
		c.names[sha] = name
	}
	client.AddHook(c)
	return c
}

func (c *scriptCounter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *scriptCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); len(args) > 1 && err == nil {
			sha, _ := args[1].(string)
			c.mu.Lock()
			c.runs[c.names[sha]]++
			c.mu.Unlock()
		}
		return err
	}
}

func (c *scriptCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if args := cmds[0].Args(); len(args) > 1 {
			_, key, _ := strings.Cut(fmt.Sprint(args[1]), "}:")
			c.mu.Lock()
			c.runs[cmds[0].Name()+" "+key]++
			c.mu.Unlock()
		}
		return err
	}
}

func (c *scriptCounter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[name]
}

// TestRelayPublishesALaneInFewTurns checks that the settlement of an event leases the next one of its lane, and that the
// relay returns by itself for the rest of a lane that is longer than one turn.
func TestRelayPublishesALaneInFewTurns(t *testing.T) {
	t.Parallel()
	for events, turns := range map[int]int{10: 1, 130: 2} {
		t.Run(fmt.Sprint(events), func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				tr, out := newTransactor(t, client), newSink()
				ran := countScripts(client, tr)
				start(t, tr, out, relay.Config{SweepInterval: time.Hour})
				redistest.Eventually(t, "the first sweep to be over", func() bool { return ran.of("exists pending") > 0 })
				ids := names("e", events)
				commit(t, tr, "a", ordered("k", ids...)...)
				redistest.Eventually(t, "everything to be settled, and the relay to have heard of it", func() bool {
					return counts(t, tr) == outbox.Counts{Sent: int64(events)} && ran.of("settle") >= events
				})
				if got := out.having("e"); !slices.Equal(got, ids) {
					t.Errorf("published %v", got)
				}
				if claims, settles := ran.of("claim"), ran.of("settle"); claims != turns || settles != events {
					t.Errorf("%d claims and %d settlements, want %d and %d", claims, settles, turns, events)
				}
			})
		})
	}
}

// TestOrderedEventsCommittedWithPlainOnesStayInOrder checks that ordered events wait for their turn, although they were
// committed with events that are published at once.
func TestOrderedEventsCommittedWithPlainOnesStayInOrder(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client), newSink()
		out.answer = func(id string, times int) error {
			if id == "e000" && times == 1 {
				return errors.New("not today")
			}
			return nil
		}
		start(t, tr, out, relay.Config{SweepInterval: time.Hour, BackoffBase: time.Millisecond, BackoffCap: time.Millisecond})
		commit(t, tr, "a", append(ordered("k", names("e", 2)...), luatx.Event{ID: "plain", Body: body("plain")})...)
		redistest.Eventually(t, "everything to be settled", func() bool { return counts(t, tr) == outbox.Counts{Sent: 3} })
		if got := out.having("e"); !slices.Equal(got, []string{"e000", "e000", "e001"}) {
			t.Errorf("published %v", got)
		}
	})
}

// TestLanesKeepOrderDespiteFailuresAndOutages checks the order of every lane over failures, outages and two relays, and that no
// two events of a lane are published at the same time.
func TestLanesKeepOrderDespiteFailuresAndOutages(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		out, busy := newSink(), make(map[byte]int)
		var mu sync.Mutex
		out.answer = func(id string, times int) error {
			switch {
			case times == 1 && id[3] == '3':
				return errors.New("not today")
			case times == 1 && id[3] == '7':
				return relay.Unavailable(errors.New("down"))
			}
			return nil
		}
		alone := relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
			mark := func(by int) {
				mu.Lock()
				defer mu.Unlock()
				for _, e := range events {
					if busy[e.ID()[0]] += by; busy[e.ID()[0]] > 1 {
						t.Errorf("two events of lane %c at once", e.ID()[0])
					}
				}
			}
			mark(1)
			defer mark(-1)
			return out.Publish(ctx, events)
		})
		cfg := relay.Config{BackoffBase: time.Millisecond, BackoffCap: 5 * time.Millisecond, PauseCap: 10 * time.Millisecond, SweepInterval: 10 * time.Millisecond}
		start(t, tr, alone, cfg)
		start(t, elsewhere(t, client, tr), alone, cfg)
		const each = 20
		var want []string
		for _, lane := range []string{"x", "y", "z"} {
			want = append(want, names(lane, each)...)
		}
		for i := range each { // the lanes grow during publishing
			var events []luatx.Event
			for _, lane := range []string{"x", "y", "z"} {
				events = append(events, ordered(lane, names(lane, each)[i])...)
			}
			commit(t, tr, "a", events...)
		}
		redistest.Eventually(t, "everything to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: int64(len(want))} })
		for _, lane := range []string{"x", "y", "z"} {
			var sent []string // without the repetitions after failed attempts
			for _, id := range out.having(lane) {
				if len(sent) == 0 || sent[len(sent)-1] != id {
					sent = append(sent, id)
				}
			}
			if !slices.Equal(sent, names(lane, each)) {
				t.Errorf("lane %s: %v", lane, sent)
			}
		}
	})
}

// TestOnParkDecidesWhetherALaneContinues checks the events behind a parked one, and that other lanes are not affected.
func TestOnParkDecidesWhetherALaneContinues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy        relay.OnPark
		before, after []string
	}{
		{relay.LaneBlocks, []string{"a1"}, []string{"a1", "a1", "a2", "a3"}},
		{relay.LaneContinues, []string{"a1", "a2", "a3"}, []string{"a1", "a2", "a3", "a1"}},
	} {
		redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
			tr, out := newTransactor(t, client), newSink()
			out.answer = func(id string, times int) error {
				if id == "a1" && times == 1 {
					return message.Permanent(errors.New("no such customer"))
				}
				return nil
			}
			start(t, tr, out, relay.Config{OnPark: c.policy, SweepInterval: 10 * time.Millisecond})
			commit(t, tr, "a", append(ordered("k", "a1", "a2", "a3"), ordered("l", "b1", "b2")...)...)
			redistest.Eventually(t, "the other lane", func() bool { return len(out.having("b")) == 2 })
			redistest.Eventually(t, "the lane", func() bool { return slices.Equal(out.having("a"), c.before) && counts(t, tr).Parked == 1 })
			redistest.Eventually(t, "all to be settled", func() bool { return counts(t, tr).Sent == int64(len(c.before)+1) })
			store := outbox.NewStore(tr).As("operator")
			for p, err := range store.Parked(t.Context(), outbox.Filter{}) {
				if err != nil || p.ID != "a1" || p.Class != "refused" {
					t.Errorf("parked: %+v, %v", p, err)
				}
				if n, err := store.Rearm(t.Context(), p.Slot, p.ID); n.Done() != 1 || err != nil {
					t.Errorf("re-armed: %v, %v", n, err)
				}
			}
			redistest.Eventually(t, "everything to be sent", func() bool { return counts(t, tr) == outbox.Counts{Sent: 5} })
			if got := out.having("a"); !slices.Equal(got, c.after) {
				t.Errorf("published %v, want %v", got, c.after)
			}
		})
	}
}

// TestOnParkDecidesAboutTheLaneOfAnEventParkedAfterACrash checks it with an event whose lease has ended at its last attempt.
func TestOnParkDecidesAboutTheLaneOfAnEventParkedAfterACrash(t *testing.T) {
	t.Parallel()
	for policy, want := range map[relay.OnPark]outbox.Counts{
		relay.LaneBlocks: {Sent: 1, Parked: 1, Waiting: 2}, relay.LaneContinues: {Sent: 3, Parked: 1},
	} {
		redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
			tr, out := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) }), newSink()
			commit(t, tr, "a", ordered("k", "a1", "a2", "a3")...)
			home := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0])
			claim, err := link.Of(tr).Scripts.Claim(t.Context(), home, shard.Claiming{Limit: 1, Lease: time.Millisecond, Attempts: 1})
			if err != nil || len(claim.Events) != 1 || claim.Events[0].ID != "a1" {
				t.Fatalf("claimed %+v, %v", claim, err)
			}
			start(t, tr, out, relay.Config{OnPark: policy, Attempts: 1, SweepInterval: 10 * time.Millisecond})
			redistest.Eventually(t, "the event to be parked", func() bool { return counts(t, tr).Parked == 1 })
			emit(t, tr, "a", "b")
			redistest.Eventually(t, "the events that may be published", func() bool {
				c := counts(t, tr)
				return c.Sent == want.Sent && c.Parked == want.Parked && c.Waiting == want.Waiting && c.Pending == 0
			})
			if out.count("a1") > 0 {
				t.Error("an event without another attempt was published")
			}
		})
	}
}

func TestScheduledEventIsPublishedAtItsTime(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out := newTransactor(t, client), newSink()
		start(t, tr, out, relay.Config{SweepInterval: time.Hour})
		at := time.Now().Add(300 * time.Millisecond)
		var published time.Time
		out.answer = func(id string, _ int) error {
			if id == "e-later" {
				published = time.Now()
			}
			return nil
		}
		commit(t, tr, "a", luatx.Event{ID: "e-later", At: at, Body: body("e-later")}, luatx.Event{ID: "e-now", Body: body("e-now")},
			luatx.Event{ID: "e-long-ago", At: time.UnixMilli(1), Body: body("e-long-ago")})
		redistest.Eventually(t, "all three", func() bool { return len(out.having("e-")) == 3 })
		out.mu.Lock()
		defer out.mu.Unlock()
		if out.order[2] != "e-later" || published.Before(at.Truncate(time.Millisecond)) {
			t.Errorf("published %v, the last at %v, which is %v too early", out.order, published, at.Sub(published))
		}
	})
}

func TestStoppedRelayLeavesFollowersOfALaneUnleased(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr := newTransactor(t, client)
	entered, leave := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(entered) })
	r, err := relay.New(tr, relay.PublisherFunc(func(context.Context, []*message.RawMessage) []error {
		first()
		<-leave
		return nil
	}), relay.Config{SweepInterval: 10 * time.Millisecond})
	redistest.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(ctx) }()
	commit(t, tr, "a", ordered("k", names("e", 5)...)...)
	<-entered
	stop()
	redistest.Eventually(t, "the relay to stop", func() bool {
		inline := link.Of(tr).Relay()
		_, open := inline.Reserve()
		if open {
			inline.Committed(0, nil, true)
		}
		return !open
	})
	close(leave)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if c := counts(t, tr); c.Leased != 0 || c.Sent != 1 || c.Pending != 1 {
		t.Errorf("%+v", c)
	}
	scripts, home := link.Of(tr).Scripts, link.Of(tr).Scripts.Shard(slotWith(t, tr))
	claim, err := scripts.Claim(t.Context(), home, shard.Claiming{Limit: 10, Lease: time.Hour, Attempts: 1})
	if err != nil || len(claim.Events) != 1 || claim.Events[0].ID != "e001" || claim.Events[0].Attempt != 1 {
		t.Errorf("%+v, %v", claim, err)
	}
}

// slotWith returns the slot with pending events.
func slotWith(t testing.TB, tr *luatx.Transactor) int {
	t.Helper()
	waiting, err := link.Of(tr).Scripts.Waiting(t.Context(), tr.Keyspace().Slots())
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	return waiting[0]
}

func TestSentIDIsForgottenAfterSentRetention(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, out, others := newTransactor(t, client), newSink(), 0
		start(t, tr, out, relay.Config{NoInline: true, SentRetention: 50 * time.Millisecond, SweepInterval: 10 * time.Millisecond})
		redistest.Eventually(t, "the same event to be published again", func() bool {
			emit(t, tr, "a", "e", fmt.Sprint("other", others)) // sent events forget earlier ones
			others++
			return out.count("e") > 1
		})
	})
}
