package stream_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
)

// isBeat recognizes the script of heartbeats by its arguments.
func isBeat(cmd []string) bool {
	return strings.HasPrefix(strings.ToLower(cmd[0]), "eval") && len(cmd) > 7 && cmd[6] == "0" && cmd[7] == "0"
}

func beats(proxy *respproxy.Proxy) int { return len(proxy.Commands(isBeat)) }

func TestSlowHandlerKeepsItsMessageAndNoDeliveryIsCounted(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client)
		f.add(t, "slow", "waits in the channel")
		cfg := f.config()
		cfg.MaxIdleTime, cfg.MaxDeliveries = 600*time.Millisecond, 1
		slow := f.subscribe(t, cfg)
		msg := slow.next(t)
		begun := time.Now()
		cfg.ClaimInterval = 10 * time.Millisecond
		other := f.subscribe(t, cfg)
		eventually(t, func() bool { return time.Since(begun) > 3*cfg.MaxIdleTime }, func() string { return "" })
		for _, p := range f.pending(t) {
			if p.RetryCount != 1 {
				t.Errorf("%d deliveries counted, want 1", p.RetryCount)
			}
		}
		msg.Ack()
		slow.next(t).Ack()
		f.wantPending(t, 0)
		if got := other.Stats(); got.Claimed != 0 || got.Delivered != 0 || got.DeadLettered != 0 {
			t.Errorf("the other took what is in work: %+v", got)
		}
	})
}

func TestEntryWithoutHeartbeatIsClaimedAfterMaxIdleTime(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a")
	cfg := f.config()
	cfg.MaxIdleTime, cfg.NoHeartbeat = 50*time.Millisecond, true
	f.subscribe(t, cfg).next(t)
	other := f.subscribe(t, cfg)
	wantData(t, other.next(t), "a")
}

func TestHeartbeatDoesNotTakeBackClaimedEntries(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	ids := f.add(t, "a", "b")
	cfg := f.config()
	cfg.MaxIdleTime, cfg.ClaimInterval = 60*time.Millisecond, time.Hour
	sub := f.subscribe(t, cfg)
	a, b := sub.next(t), sub.next(t)
	direct := redistest.Shared(t).Client(t)
	redistest.Must(t, direct.Do(t.Context(), "xclaim", f.key, "shop", "other", 0, ids[0], "justid").Err())
	seen := beats(proxy)
	eventually(t, func() bool { return beats(proxy) > seen+6 }, func() string { return "no beats" })
	for _, p := range f.pending(t) {
		mine := p.Consumer != "other"
		if mine != (p.ID == ids[1]) {
			t.Errorf("%s is pending for %s", p.ID, p.Consumer)
		}
		if !mine && p.Idle < cfg.MaxIdleTime/2 {
			t.Errorf("the other's entry looks fresh: idle for %v", p.Idle)
		}
	}
	a.Release()
	b.Ack()
	f.wantPending(t, 1)
}

// TestHeartbeatKeepsATrimmedEntryPending checks that a heartbeat does not claim a trimmed entry. That would remove it from
// the group, and its commit would be rejected.
func TestHeartbeatKeepsATrimmedEntryPending(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	f.add(t, "a")
	cfg := f.config()
	cfg.MaxIdleTime, cfg.ClaimInterval = 60*time.Millisecond, time.Hour
	msg := f.subscribe(t, cfg).next(t)
	redistest.Must(t, f.client.XTrimMaxLen(t.Context(), f.key, 0).Err())
	seen := beats(proxy)
	eventually(t, func() bool { return beats(proxy) > seen+2 }, func() string { return "no beats" })
	f.wantPending(t, 1)
	msg.Ack()
	f.wantPending(t, 0)
}

func TestHeartbeatEndsWithTheMessage(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	f.add(t, "a")
	cfg := f.config()
	cfg.MaxIdleTime = 60 * time.Millisecond
	msg := f.subscribe(t, cfg).next(t)
	eventually(t, func() bool { return beats(proxy) > 1 }, func() string { return "no beats" })
	msg.Ack()
	eventually(t, func() bool { // one may be in flight
		seen := beats(proxy)
		looks := proxy.Count("XPENDING")
		eventually(t, func() bool { return proxy.Count("XPENDING") > looks+10 }, func() string { return "it does not look" })
		return beats(proxy) == seen
	}, func() string { return "beats go on" })
}

func TestHoldChangesOnlyEntriesThatArePendingForTheConsumer(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, f := redistest.Soon(t), newFixture(t, client)
		ids := f.add(t, "of another", "once", "twice", "deleted", "acknowledged")
		f.takeAs(t, "other", 1)
		f.takeAs(t, "own", 4)
		redistest.Must(t,
			client.XClaim(ctx, &redis.XClaimArgs{Stream: f.key, Group: "shop", Consumer: "own", Messages: ids[2:3]}).Err(),
			client.XDel(ctx, f.key, ids[3]).Err(), client.XAck(ctx, f.key, "shop", ids[4]).Err(),
		)
		m := &group.Member{Client: client, Stream: f.key, Group: "shop", Consumer: "own"}
		want := func(longs []bool, deliveries ...int64) {
			t.Helper()
			pending := f.pending(t)
			for i, p := range pending {
				if p.ID != ids[i] || (p.Consumer == "own") != (i > 0) || (p.Idle >= time.Hour) != longs[i] || p.RetryCount != deliveries[i] {
					t.Errorf("entry %d: %+v", i, p)
				}
			}
			if len(pending) != 4 {
				t.Errorf("%d entries are pending", len(pending))
			}
		}
		redistest.Must(t, m.Hold(ctx, ids, time.Hour, true))
		want([]bool{false, true, true, false}, 1, 0, 1, 1)
		redistest.Must(t, m.Hold(ctx, ids, 0, false))
		want([]bool{false, false, false, false}, 1, 0, 1, 1)
	})
}
