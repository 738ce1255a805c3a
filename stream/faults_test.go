package stream_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
)

const (
	logFails   = "stream: subscriber failed"
	logWorks   = "stream: subscriber recovered"
	logRemade  = "stream: group created again"
	logUnacked = "stream: ack failed"
)

// drain acks n different messages, skipping duplicates, and returns their data.
func (s *subscription) drain(t *testing.T, n int) []string {
	t.Helper()
	var got []string
	for len(got) < n {
		msg := s.next(t)
		if !slices.Contains(got, string(msg.Data)) {
			got = append(got, string(msg.Data))
		}
		msg.Ack()
	}
	return got
}

func numbers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}

var takeover = redis.NewScript(lua.Script("takeover", nil))

func isClaim(cmd []string) bool {
	return strings.EqualFold(cmd[0], "evalsha") && cmd[1] == takeover.Hash()
}

func TestLostRepliesLoseNoEntry(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]respproxy.Matcher{
		"read":  respproxy.Command("XREADGROUP"),
		"claim": isClaim,
		"look":  respproxy.Command("XPENDING"),
	} {
		for how, action := range map[string]func() respproxy.Action{
			"cut reply": respproxy.CutReply, "split reply": respproxy.SplitReply, "cut request": respproxy.CutRequest,
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				server := redistest.Shared(t)
				proxy := redistest.Proxy(t, server.Addr())
				f := newFixture(t, server.Client(t))
				f.add(t, numbers(20)...)
				f.takeAs(t, "dead", 10)
				cfg := f.config()
				cfg.MaxIdleTime, cfg.MaxInFlight, cfg.BatchSize = 50*time.Millisecond, 8, 4
				hits := 0
				proxy.On(func(cmd []string) respproxy.Action {
					if !match(cmd) {
						return respproxy.Pass()
					}
					if hits++; hits%4 < 2 { // two attempts in a row succeed, because the subscriber first looks for lost entries
						return respproxy.Pass()
					}
					return action()
				})
				direct := f.client
				f.client = redistest.Client(t, proxy.Addr())
				sub := f.subscribe(t, cfg)
				f.client = direct
				if got := sub.drain(t, 20); len(got) != 20 {
					t.Fatalf("got %q", got)
				}
				f.wantPending(t, 0)
			})
		}
	}
}

// TestLostReplyIsReadAgainAtOnce checks that entries of a lost reply do not wait for MaxIdleTime, because they are pending
// for this consumer.
func TestLostReplyIsReadAgainAtOnce(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	sub := f.subscribe(t, f.config())
	f.add(t, "held")
	held := sub.next(t)
	proxy.DropReply(1, func(cmd []string) bool {
		return strings.EqualFold(cmd[0], "XREADGROUP") && cmd[len(cmd)-1] == ">"
	})
	f.add(t, "a", "b")
	got := []string{string(sub.next(t).Data), string(sub.next(t).Data)}
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("got %q, want what the lost reply held", got)
	}
	if d := sub.Stats().Delivered; d != 3 {
		t.Fatalf("%d delivered, want 3: what is in flight is not read again", d)
	}
	for _, p := range f.pending(t) {
		if source, _ := held.InputSource(); p.ID == source.Entry && p.RetryCount != 1 {
			t.Errorf("%d deliveries of what is in flight were counted, want 1", p.RetryCount)
		}
	}
	held.Ack()
	f.logs.want(t, logFails, 1)
	f.logs.want(t, logWorks, 1)
}

func TestEveryMessageIsAckedDespiteRandomFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	f := newFixture(t, server.Client(t))
	cfg := f.config()
	cfg.MaxIdleTime, cfg.MaxInFlight = 100*time.Millisecond, 7
	direct := f.client
	f.client = redistest.Client(t, proxy.Addr())
	sub := f.subscribe(t, cfg)
	f.client = direct
	stop := proxy.Chaos(respproxy.Chaos{Seed: 7, DropRequest: .05, DropReply: .1, Cut: .05, Delay: .1, MaxDelay: 5 * time.Millisecond})
	f.add(t, numbers(100)...)
	seen := map[string]bool{}
	for n := 0; len(seen) < 100; n++ {
		msg := sub.next(t)
		if n%5 == 0 {
			msg.Nack(errBusy)
			continue
		}
		seen[string(msg.Data)] = true
		msg.Ack()
	}
	stop()
	eventually(t, func() bool {
		select {
		case msg := <-sub.ch: // acked before, but the ack was lost
			msg.Ack()
		default:
		}
		return len(f.pending(t)) == 0
	}, func() string { return "entries stay pending" })
}

func TestDeletedGroupIsCreatedAgain(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		start string
		ruin  func(*testing.T, *fixture) error
		want  []string
	}{
		"group": {"0", func(t *testing.T, f *fixture) error {
			t.Helper()
			return f.client.XGroupDestroy(t.Context(), f.key, "shop").Err()
		}, []string{"old", "a", "b"}},
		"group, new entries only": {"$", func(t *testing.T, f *fixture) error {
			t.Helper()
			return f.client.XGroupDestroy(t.Context(), f.key, "shop").Err()
		}, []string{"a", "b"}},
		"stream": {"0", func(t *testing.T, f *fixture) error {
			t.Helper()
			return f.client.Del(t.Context(), f.key).Err()
		}, []string{"b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			f.add(t, "old")
			cfg := f.config()
			cfg.StartID = test.start
			sub := f.subscribe(t, cfg)
			if test.start == "0" {
				sub.next(t).Ack()
			}
			f.add(t, "a")
			sub.next(t).Ack()
			redistest.Must(t, test.ruin(t, f))
			f.logs.want(t, logRemade, 1)
			f.add(t, "b")
			for _, want := range test.want {
				msg := sub.next(t)
				wantData(t, msg, want)
				msg.Ack()
			}
			f.wantPending(t, 0)
		})
	}
}

func TestSubscriptionContinuesAfterAServerRestart(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own(), redistest.Config("appendonly yes", "appendfsync always"))
	f := newFixture(t, server.Client(t))
	sub := f.subscribe(t, f.config())
	f.add(t, "a", "b")
	a, b := sub.next(t), sub.next(t)
	redistest.Must(t, server.Kill())
	f.logs.want(t, logFails, 1)
	a.Nack(errBusy) // not while the server is down
	redistest.Must(t, server.Restart(t.Context()))
	b.Ack()
	wantData(t, sub.next(t), "a")
	f.add(t, "c")
	wantData(t, sub.next(t), "c")
	f.wantPending(t, 2)
	if got := sub.Stats().Delivered; got != 4 {
		t.Errorf("%d delivered, want 4", got)
	}
}

func TestSubscriptionContinuesOnAServerThatLostItsData(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	f := newFixture(t, server.Client(t))
	sub := f.subscribe(t, f.config())
	f.add(t, "a")
	sub.next(t)
	redistest.Must(t, server.Kill())
	redistest.Must(t, server.Restart(t.Context()))
	f.add(t, "b")
	wantData(t, sub.next(t), "b")
}

func TestSubscriptionContinuesOnceTheServerIsReady(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own(), redistest.Config("replica-read-only yes"))
	f := newFixture(t, server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 }))
	sub := f.subscribe(t, f.config())
	admin := server.Admin(t)
	redistest.Must(t, admin.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err()) // READONLY or MASTERDOWN
	f.logs.want(t, logFails, 1)
	redistest.Must(t, admin.Do(t.Context(), "replicaof", "no", "one").Err())
	f.add(t, "a")
	wantData(t, sub.next(t), "a")
	f.logs.want(t, logWorks, 1)
}

func TestEntryWhoseAckFailsIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t, func(o *redis.Options) { o.MaxRetries = -1 })
	f.add(t, "a", "b")
	cfg := f.config()
	cfg.MaxIdleTime = 100 * time.Millisecond
	sub := f.subscribe(t, cfg)
	a, b := sub.next(t), sub.next(t)
	proxy.Next(2, respproxy.Command("XACK"), respproxy.CutRequest())
	a.Ack()
	f.wantPending(t, 1)
	proxy.Next(3, respproxy.Command("XACK"), respproxy.CutRequest())
	b.Ack()
	f.logs.want(t, logUnacked, 1)
	if got := sub.Stats().AckFailed; got != 1 {
		t.Errorf("%d acks failed, want 1", got)
	}
	again := sub.next(t)
	wantData(t, again, "b")
	again.Ack()
	f.wantPending(t, 0)
}

func TestNoBusyLoopInAnOutage(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	f.subscribe(t, f.config())
	proxy.On(func(cmd []string) respproxy.Action {
		if strings.EqualFold(cmd[0], "XREADGROUP") {
			return respproxy.CutRequest()
		}
		return respproxy.Pass()
	})
	seen, begun := proxy.Count("XREADGROUP"), time.Now()
	eventually(t, func() bool { return time.Since(begun) > time.Second }, func() string { return "" })
	if n := proxy.Count("XREADGROUP") - seen; n < 1 || n > 50 {
		t.Errorf("%d attempts within a second", n)
	}
	if n := f.logs.count(logFails); n != 1 {
		t.Errorf("the outage was logged %d times, want once", n)
	}
}

func TestLostClaimIsReadAgainAtOnce(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	id := f.add(t, "a")[0]
	f.takeAs(t, "dead", 1)
	redistest.Must(t, f.client.Do(t.Context(), "xclaim", f.key, "shop", "dead", 0, id, "idle", 2*time.Hour.Milliseconds(), "justid").Err())
	proxy.DropReply(1, isClaim)
	wantData(t, f.subscribe(t, f.config()).next(t), "a")
}

func TestRecoveryDoesNotRedeliverRefusedEntries(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, Values: []any{"ce_specversion", "9", "data", "bad"}}).Err())
	f.add(t, "refused")
	sub := f.subscribe(t, f.config())
	sub.next(t).Nack(message.Permanent(errBusy))
	proxy.DropReply(1, respproxy.Command("XREADGROUP"))
	f.logs.want(t, logWorks, 1)
	f.add(t, "b")
	wantData(t, sub.next(t), "b")
	if got := sub.Stats(); got.Malformed != 1 || got.Delivered != 2 {
		t.Errorf("stats are %+v, want nothing a second time", got)
	}
}

func TestConsumerStaysIfALateRequestMayStillArrive(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	f.add(t, "a")
	sub := f.subscribe(t, f.config())
	sub.next(t).Ack()
	proxy.Next(1, respproxy.Command("XREADGROUP"), respproxy.CutRequest())
	f.logs.want(t, logWorks, 1)
	sub.stop()
	consumers, err := f.client.XInfoConsumers(t.Context(), f.key, "shop").Result()
	redistest.Must(t, err)
	if len(consumers) != 1 {
		t.Errorf("%d consumers, want 1: with it would go what it has yet to read", len(consumers))
	}
}

func TestSubscriptionContinuesAfterFailover(t *testing.T) {
	t.Parallel()
	group := redistest.Sentinel(t)
	f := newFixture(t, group.Client(t))
	f.add(t, "a", "b")
	sub := f.subscribe(t, f.config())
	a, b := sub.next(t), sub.next(t)
	a.Ack()
	ctx := redistest.Soon(t)
	master, err := group.Master(ctx)
	redistest.Must(t, err)
	if n, err := master.Client(t).Wait(ctx, 1, 5*time.Second).Result(); n < 1 || err != nil {
		t.Fatalf("%d replicas have it, error %v", n, err)
	}
	redistest.Must(t, master.Kill())
	_, err = group.WaitMaster(ctx, master)
	redistest.Must(t, err)
	b.Nack(errBusy)
	redistest.Eventually(t, "a write", func() bool {
		return f.client.XAdd(ctx, &redis.XAddArgs{Stream: f.key, Values: []any{"data", "c"}}).Err() == nil
	})
	seen := map[string]bool{}
	for !seen["b"] || !seen["c"] {
		msg := sub.next(t)
		seen[string(msg.Data)] = true
		msg.Ack()
	}
	f.wantPending(t, 0)
}
