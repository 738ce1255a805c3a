package stream

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/scripted"
)

// slowScripts replaces the network and returns 1 for every script, with a delay.
type slowScripts struct{ takes time.Duration }

func (slowScripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (slowScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s slowScripts) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		sleep.For(ctx, s.takes)
		cmd.(*redis.Cmd).SetVal(int64(1))
		return nil
	}
}

// TestMemberCountsItsLeaseFromTheRequest checks the start of the lease. The server counts it from the run of the script,
// which is before the reply arrives.
func TestMemberCountsItsLeaseFromTheRequest(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"take", "keep"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const lease, takes = 9 * time.Second, 4 * time.Second
				client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
				defer client.Close()
				client.AddHook(slowScripts{takes})
				m := &member{PartitionedSubscriber: &PartitionedSubscriber{cfg: PartitionedConfig{Lease: lease}}, name: "m"}
				p := &partition{subscription: &subscription{Subscriber: &Subscriber{client: client}}, m: m, begun: time.Now()}
				if done, err := p.bid(t.Context(), what, 0); err != nil || !done {
					t.Fatal(done, err)
				}
				time.Sleep(lease - takes - time.Nanosecond)
				if !p.mine() {
					t.Error("the lease ends before its time")
				}
				time.Sleep(time.Nanosecond)
				if p.mine() {
					t.Errorf("the member takes the lease for its own %v after the request", lease)
				}
			})
		})
	}
}

func TestLeaseIsTheMembersOnlyIfItIsTakenOrKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		reply any
		mine  bool
	}{
		{"take", 1, true}, {"keep", 1, true}, {"take", 0, false}, {"keep", 0, false}, {"free", 1, false}, {"take", errors.New("ERR no"), false},
	} {
		client := scripted.New(func([]string) any { return c.reply }).Client(t)
		m := &member{PartitionedSubscriber: &PartitionedSubscriber{cfg: PartitionedConfig{Lease: time.Hour}}, name: "m"}
		p := &partition{subscription: &subscription{Subscriber: &Subscriber{client: client}}, m: m, begun: time.Now()}
		if done, err := p.bid(t.Context(), c.what, 0); done != (c.reply == 1) || (err == nil) != (c.reply == 0 || c.reply == 1) || p.mine() != c.mine {
			t.Errorf("%s, %v: %t, %v, its own: %t", c.what, c.reply, done, err, p.mine())
		}
	}
}

func TestLeaseThatCannotBeKeptIsAnOutageUntilItIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Bool
		server := scripted.New(func(cmd []string) any {
			if cmd[0] == "lease" && refused.Load() {
				return errors.New("ERR no")
			}
			return 1
		}, "lease")
		var logs bytes.Buffer
		m := &member{PartitionedSubscriber: &PartitionedSubscriber{cfg: PartitionedConfig{Lease: 9 * time.Second}}, name: "m"}
		sub := &subscription{Subscriber: &Subscriber{client: server.Client(t)}, outage: outage{log: slog.New(slog.NewTextHandler(&logs, nil))}, detached: t.Context()}
		p := &partition{subscription: sub, m: m, begun: time.Now()}
		done := make(chan struct{})
		go p.keep(done, func() { t.Error("the lease is given up") })
		refused.Store(true)
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if n := strings.Count(logs.String(), "operation=lease"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, &logs)
		}
		refused.Store(false)
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if n := strings.Count(logs.String(), "operation=lease"); n != 2 {
			t.Errorf("logged %d times:\n%s", n, &logs)
		}
		close(done)
	})
}

func TestLeaseIsKeptUntilTheHandlersOfAPartitionToBeReleasedReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := scripted.New(func([]string) any { return 1 }, "lease")
		m := &member{PartitionedSubscriber: &PartitionedSubscriber{cfg: PartitionedConfig{Lease: 9 * time.Second}}, name: "m", held: 2, share: 1}
		p := &partition{subscription: &subscription{Subscriber: &Subscriber{client: server.Client(t)}, detached: t.Context()}, m: m, begun: time.Now()}
		stopped, done := 0, make(chan struct{})
		go p.keep(done, func() { stopped++ })
		time.Sleep(time.Minute)
		synctest.Wait()
		if stopped != 1 || !p.mine() {
			t.Errorf("stopped %d times, the lease is still its own: %t", stopped, p.mine())
		}
		close(done)
	})
}

func TestLeaseIsTakenOnlyIfItWasFreeForLongEnough(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tag := redistest.Soon(t), "{"+redistest.Tag(t)+"}"
		void, lease := tag+":void", tag+":lease"
		expect := func(what, owner string, patience time.Duration, want bool) {
			t.Helper()
			done, err := leaseScript.Run(ctx, client, []string{void, lease}, what, owner, time.Hour.Milliseconds(), patience.Milliseconds()).Bool()
			if err != nil || done != want {
				t.Errorf("%s by %s with a patience of %v: %t, %v; want %t", what, owner, patience, done, err, want)
			}
		}
		expect("take", "a", time.Hour, false) // never held, so the time for which it has been free is unknown
		expect("take", "a", time.Millisecond, false)
		expect("take", "a", 0, true)
		expect("take", "a", time.Hour, true) // it has it already
		expect("keep", "a", 0, true)
		expect("take", "b", 0, false)
		expect("keep", "b", 0, false)
		expect("free", "b", 0, false)
		expect("free", "a", 0, true)
		expect("take", "b", time.Hour, false)
		expect("take", "b", 0, true)

		now, err := client.Time(ctx).Result()
		if err == nil {
			err = client.HSet(ctx, lease, "until", now.Add(-2*time.Hour).UnixMilli()).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		expect("take", "a", 3*time.Hour, false)
		expect("take", "a", time.Hour, true)
	})
}

func TestLeaseIsFreeFromTheMillisecondOfItsEnd(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	start := time.Now().Truncate(time.Second)
	take := func(owner string, at time.Duration) bool {
		t.Helper()
		server.SetTime(start.Add(at))
		done, err := leaseScript.Run(t.Context(), client, []string{"void", "lease"}, "take", owner, 1000, 0).Bool()
		redistest.Must(t, err)
		return done
	}
	for _, c := range []struct {
		owner string
		at    time.Duration
		want  bool
	}{{"a", 0, true}, {"b", 999 * time.Millisecond, false}, {"b", time.Second, true}} {
		if got := take(c.owner, c.at); got != c.want {
			t.Errorf("taken by %s after %v: %t", c.owner, c.at, got)
		}
	}
}

func TestClockThatIsSetBackFreesLeasesAndRemovesMembers(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	start := time.Now().Truncate(time.Second)
	for _, c := range []struct {
		owner string
		at    time.Duration
		want  bool
	}{{"a", time.Hour, true}, {"b", time.Hour - 9*time.Second, false}, {"b", time.Hour - 10*time.Second, true}} {
		server.SetTime(start.Add(c.at))
		done, err := leaseScript.Run(t.Context(), client, []string{"void", "lease"}, "take", c.owner, 1000, 0).Bool()
		if err != nil || done != c.want {
			t.Errorf("taken by %s at %v: %t, %v", c.owner, c.at, done, err)
		}
		names, err := membersScript.Run(t.Context(), client, []string{"void", "members"}, "beat", c.owner, 1000).StringSlice()
		if err != nil || len(names) != 1 || names[0] != c.owner {
			t.Errorf("the members at %v are %v, %v", c.at, names, err)
		}
	}
}

func TestSharesAddUpAndDifferByOneAtMost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, members := rapid.IntRange(1, 16384).Draw(t, "partitions"), rapid.IntRange(1, 200).Draw(t, "members")
		sum, first, last := 0, share(0, members, n), share(members-1, members, n)
		for rank := range members {
			one := share(rank, members, n)
			if one > first || one < last {
				t.Fatalf("the member of rank %d has %d, want from %d to %d", rank, one, last, first)
			}
			sum += one
		}
		if sum != n || first-last > 1 || first > (n+members-1)/members {
			t.Fatalf("the shares, from %d to %d, add up to %d, want %d", last, first, sum, n)
		}
	})
}

func TestOnlyAHandlerThatTakesTooLongLosesTheLeaseWithNoHeartbeat(t *testing.T) {
	t.Parallel()
	const age = time.Hour // of the partition
	for _, c := range []struct {
		name        string
		noHeartbeat bool
		given       time.Duration // when the unsettled messages were delivered, since the partition's start, or 0 if there are none
		want        bool
	}{
		{"nothing is given out", true, 0, false},
		{"given out at once", true, 1, true},
		{"given out MaxIdleTime ago", true, age - time.Minute, false},
		{"given out a little earlier", true, age - time.Minute - 1, true},
		{"given out just now", true, age - time.Minute/2, false},
		{"given out long ago", true, age - 2*time.Minute, true},
		{"given out long ago, with a heartbeat", false, age - 2*time.Minute, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := SubscriberConfig{NoHeartbeat: c.noHeartbeat, MaxIdleTime: time.Minute}
			p := &partition{subscription: &subscription{Subscriber: &Subscriber{cfg: cfg}}, begun: time.Now().Add(-age)}
			p.since.Store(int64(c.given))
			if got := p.hangs(); got != c.want {
				t.Errorf("%s: hangs is %v", c.name, got)
			}
		})
	}
}
