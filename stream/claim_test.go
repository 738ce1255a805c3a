package stream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

func TestEntriesOfADeadConsumerAreClaimedInOrder(t *testing.T) {
	t.Parallel()
	f, seen := shared(t), &observed{}
	f.add(t, "a", "b", "c")
	f.takeAs(t, "dead", 3)
	cfg := f.config()
	cfg.MaxIdleTime, cfg.MaxInFlight, cfg.Observer = 100*time.Millisecond, 2, seen.observer()
	sub := f.subscribe(t, cfg)
	for _, want := range []string{"a", "b", "c"} {
		msg := sub.next(t)
		wantData(t, msg, want)
		msg.Ack()
	}
	f.wantPending(t, 0)
	if got := sub.Stats().Claimed; got != 3 {
		t.Errorf("%d claimed, want 3", got)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if d := seen.delivered[0]; d.ClaimedFrom != "dead" || d.Deliveries != 2 {
		t.Errorf("observed %+v, want it claimed from dead", d)
	}
}

func TestClaimReadsAllPagesOfPendingEntries(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for range 230 {
		f.add(t, "x")
	}
	last := f.add(t, "last")[0]
	f.takeAs(t, "dead", 231)
	redistest.Must(t, f.client.Do(t.Context(), "xclaim", f.key, "shop", "dead", 0, last, "idle", 120_000, "justid").Err())
	cfg := f.config()
	cfg.MaxIdleTime = time.Minute
	wantData(t, f.subscribe(t, cfg).next(t), "last")
}

func TestSubscriberClaimsNoEntryFromItself(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	f.add(t, "a", "b")
	cfg := f.config()
	cfg.MaxIdleTime = 10 * time.Millisecond
	cfg.ClaimInterval = 10 * time.Millisecond
	sub := f.subscribe(t, cfg)
	sub.next(t)
	b := sub.next(t)
	seen := proxy.Count("XPENDING")
	eventually(t, func() bool { return proxy.Count("XPENDING") > seen+5 }, func() string { return "it does not look" })
	if got := sub.Stats(); got.Delivered != 2 || got.Claimed != 0 {
		t.Fatalf("stats are %+v, want two delivered and none claimed", got)
	}
	b.Release() // the entry then has no consumer
	wantData(t, sub.next(t), "b")
}

func TestTwoSubscribersShareEntriesWithoutClaiming(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for range 50 {
		f.add(t, "a", "b")
	}
	cfg := f.config()
	cfg.MaxIdleTime = 20 * time.Second
	one, two := f.subscribe(t, cfg), f.subscribe(t, cfg)
	for range 100 {
		select {
		case msg := <-one.ch:
			msg.Ack()
		case msg := <-two.ch:
			msg.Ack()
		case <-time.After(patience):
			t.Fatal("no message")
		}
	}
	f.wantPending(t, 0)
	if got := one.Stats().Delivered + two.Stats().Delivered; got != 100 {
		t.Errorf("%d delivered by both, want 100", got)
	}
}

func TestTrimmedEntriesLeaveTheGroup(t *testing.T) {
	t.Parallel()
	for name, consumer := range map[string]string{"own": "me", "another's": "dead"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			f.add(t, "a", "b", "c")
			f.takeAs(t, consumer, 3)
			redistest.Must(t, f.client.XTrimMaxLen(t.Context(), f.key, 1).Err())
			cfg := f.config()
			cfg.Consumer, cfg.MaxIdleTime = "me", time.Nanosecond*1e6
			sub := f.subscribe(t, cfg)
			msg := sub.next(t)
			wantData(t, msg, "c")
			f.wantPending(t, 1)
			msg.Ack()
			f.logs.want(t, "stream: unacked entry trimmed", 2)
			if got := sub.Stats().Trimmed; got != 2 {
				t.Errorf("%d trimmed, want 2", got)
			}
		})
	}
}

func TestNackedEntryThatWasTrimmedLeavesTheGroup(t *testing.T) {
	t.Parallel()
	for name, nack := range map[string]error{"to come again": errBusy, "as a dead letter": message.Permanent(errBusy)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			f.add(t, "a")
			cfg := f.config()
			cfg.MaxDeliveries = 10
			sub := f.subscribe(t, cfg)
			msg := sub.next(t)
			redistest.Must(t, f.client.XTrimMaxLen(t.Context(), f.key, 0).Err())
			msg.Nack(nack)
			f.wantPending(t, 0)
			eventually(t, func() bool { return sub.Stats().Trimmed == 1 }, func() string { return "not counted" })
		})
	}
}

func TestClaimSendsNothingThatRedis60DoesNotKnow(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	f.add(t, "a")
	f.takeAs(t, "dead", 1)
	cfg := f.config()
	cfg.MaxIdleTime = time.Millisecond
	f.subscribe(t, cfg).next(t).Ack()
	if len(proxy.Commands(isClaim)) == 0 {
		t.Fatal("nothing was claimed")
	}
	for _, cmd := range proxy.Commands(func(cmd []string) bool { return cmd[0] == "xpending" }) {
		if len(cmd) > 3 && cmd[3] == "idle" {
			t.Errorf("sent %q, which Redis 6.0 does not know", cmd)
		}
	}
}

func TestEntriesInFlightAreNotClaimed(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	f.add(t, "a")
	f.takeAs(t, "alive", 1)
	f.subscribe(t, f.config())
	eventually(t, func() bool { return proxy.Count("XPENDING") > 3 }, func() string { return "it does not look" })
	if n := len(proxy.Commands(isClaim)); n != 0 {
		t.Errorf("%d claims of entries that are not idle", n)
	}
}

func TestConsumerFetchesOnlyItsOwnEntriesAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client)
		ids := f.add(t, "mine", "gone", "another's", "new")
		f.takeAs(t, "me", 2)
		f.takeAs(t, "you", 1)
		redistest.Must(t, client.XDel(t.Context(), f.key, ids[1]).Err())
		got, err := f.member("me").Fetch(t.Context(), ids...)
		redistest.Must(t, err)
		if want := "[{2 map[data:mine type:order.placed]} {2 map[]} {0 map[]} {0 map[]}]"; fmt.Sprint(got) != want || got[1].Values != nil {
			t.Errorf("%v, want %s", got, want)
		}
		var left []string
		for _, p := range f.pending(t) {
			left = append(left, fmt.Sprint(p.Consumer, " ", p.RetryCount))
		}
		if want := "[me 2 you 1]"; fmt.Sprint(left) != want {
			t.Errorf("pending for %v, want %s", left, want)
		}
	})
}

func TestEntryIsFetchedInTheMillisecondOfItsDelivery(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ids := f.add(t, numbers(30)...)
	f.takeAs(t, "me", 1)
	for _, id := range ids[1:] {
		var fetched *redis.Cmd
		_, err := f.client.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
			pipe.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "shop", Consumer: "me", Streams: []string{f.key, ">"}, Count: 1, Block: -1})
			fetched = pipe.Eval(t.Context(), lua.Script("fetch", nil), []string{f.key}, "shop", "me", id)
			return nil
		})
		redistest.Must(t, err)
		if row := fetched.Val().([]any)[0].([]any); len(row) != 2 || row[1] == nil {
			t.Errorf("%s: %v", id, row)
		}
	}
	f.wantPending(t, 30)
}
