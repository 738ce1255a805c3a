package relay_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// elsewhere returns a Transactor of the same shards, as another process has one. No relay is attached to it.
func elsewhere(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor) *luatx.Transactor {
	t.Helper()
	other, err := luatx.New(client, tr.Config())
	redistest.Must(t, err)
	return other
}

// masters returns administrators' clients of a server, or of all masters of a cluster.
func masters(t testing.TB, client redis.UniversalClient) (admins []*redis.Client) {
	t.Helper()
	switch c := client.(type) {
	case *redis.Client:
		admins = append(admins, redistest.Admin(t, c.Options().Addr))
	case *redis.ClusterClient:
		var mu sync.Mutex
		if err := c.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			admins = append(admins, redistest.Admin(t, node.Options().Addr))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return admins
}

// waitListening waits until the given number of relays have subscribed to all channels.
func waitListening(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, relays int) {
	t.Helper()
	channels, admins := slices.Concat(link.Of(tr).Runner.WakeSubscriptions(tr.Keyspace().Slots())...), masters(t, client)
	if _, cluster := client.(*redis.ClusterClient); cluster && admins[0].PubSubShardNumSub(t.Context()).Err() != nil {
		t.Skip("a cluster has wake-ups from 7.0 on")
	}
	redistest.Eventually(t, "the relays to listen", func() bool {
		listening := int64(0)
		for _, admin := range admins {
			numbers, err := admin.PubSubShardNumSub(t.Context(), channels...).Result()
			if err != nil { // before Redis 7.0
				numbers = admin.PubSubNumSub(t.Context(), channels...).Val()
			}
			for _, n := range numbers {
				listening += n
			}
		}
		return listening == int64(relays*len(channels))
	})
}

// TestRelayPublishesCommitsOfAnotherProcessAtOnce checks that a relay publishes at once what a process without a relay commits.
// Nothing else would find it within the test. It logs how long that takes.
func TestRelayPublishesCommitsOfAnotherProcessAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(64) })
		var mu sync.Mutex
		published := make(map[string]time.Time)
		out := relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
			mu.Lock()
			defer mu.Unlock()
			for _, event := range events {
				published[event.ID()] = time.Now()
			}
			return nil
		})
		start(t, tr, out, relay.Config{NoInline: true, SweepInterval: time.Hour})
		waitListening(t, client, tr, 1)
		committer, rounds := elsewhere(t, client, tr), 200
		var took []time.Duration
		for i := range rounds {
			id := fmt.Sprint("e", i)
			emit(t, committer, id, id)
			committed := time.Now()
			redistest.Eventually(t, id+" to be published", func() bool {
				mu.Lock()
				defer mu.Unlock()
				at, ok := published[id]
				if ok {
					took = append(took, max(0, at.Sub(committed)))
				}
				return ok
			})
		}
		slices.Sort(took)
		p50, p99 := took[len(took)/2], took[len(took)*99/100]
		t.Logf("from commit to publish: p50 %v, p99 %v", p50, p99)
		if limit := 5 * time.Millisecond; os.Getenv("LUATX_VERIFY") != "" && p50 > limit {
			t.Errorf("half of the events took more than %v, want %v at most", p50, limit)
		}
	})
}

// TestShardWithLeasedEventsStillWakesRelays checks that a shard with later events, here in the lease of a relay that hangs,
// still wakes relays for new ones.
func TestShardWithLeasedEventsStillWakesRelays(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(1) })
		committer := elsewhere(t, client, tr)
		emit(t, committer, "a", "leased")
		scripts := link.Of(tr).Scripts
		if claim, err := scripts.Claim(t.Context(), scripts.Shard(tr.Keyspace().Slots()[0]), shard.Claiming{Limit: 10, Lease: time.Hour, Attempts: 3}); err != nil || len(claim.Events) != 1 {
			t.Fatal(claim, err)
		}
		out := newSink()
		start(t, tr, out, relay.Config{NoInline: true, SweepInterval: time.Hour, Lease: time.Hour})
		waitListening(t, client, tr, 1)
		for _, id := range []string{"first", "second", "third"} {
			emit(t, committer, "a", id)
			redistest.Eventually(t, id+" to be published", func() bool { return out.count(id) == 1 })
		}
	})
}

// TestStoppedRelayWakesOthersForItsEvents checks that another relay publishes at once the events that a stopping relay gives
// back: the event in flight and those that wait behind it.
func TestStoppedRelayWakesOthersForItsEvents(t *testing.T) {
	t.Parallel()
	const waiting = 300 // too many to give back in DrainTimeout with one script for each
	for name, cfg := range map[string]relay.Config{"inline": {}, "cold": {NoInline: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Shared(t).Client(t)
			tr, out, entered := newTransactor(t, client), newSink(), make(chan struct{}, 100)
			cfg.SweepInterval, cfg.Lease, cfg.DrainTimeout, cfg.Concurrency, cfg.BatchSize = time.Hour, time.Hour, 10*time.Millisecond, 1, 1
			stop := start(t, tr, relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
				entered <- struct{}{}
				<-ctx.Done()
				return slices.Repeat([]error{ctx.Err()}, len(events))
			}), cfg)
			waitListening(t, client, tr, 1)
			emit(t, tr, "a", "in flight")
			<-entered
			for i := range waiting {
				emit(t, tr, "a", strconv.Itoa(i))
			}
			start(t, elsewhere(t, client, tr), out, relay.Config{NoInline: true, SweepInterval: time.Hour})
			waitListening(t, client, tr, 2)
			stop()
			redistest.Eventually(t, "the other to publish them", func() bool {
				for i := range waiting {
					if out.count(strconv.Itoa(i)) != 1 {
						return false
					}
				}
				return out.count("in flight") == 1
			})
		})
	}
}

func TestRelaysListenAgainAfterAKillOrASlotMove(t *testing.T) {
	t.Parallel()
	try := func(t *testing.T, client redis.UniversalClient, harm func(tr *luatx.Transactor)) {
		t.Helper()
		tr, out := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(4096) }), newSink()
		start(t, tr, out, relay.Config{NoInline: true, SweepInterval: time.Hour})
		waitListening(t, client, tr, 1)
		harm(tr)
		waitListening(t, client, tr, 1)
		// go-redis renews a subscription by itself, and the relay replaces that one. A wake-up that is lost in between is not
		// repeated, because its shard has due events from then on. So each event goes to another shard.
		committer, idle := elsewhere(t, client, tr), firstChannel(t, tr)
		redistest.Eventually(t, "an event to be published", func() bool {
			if len(idle) == 0 {
				t.Fatal("no wake-up of any shard was heard")
			}
			emit(t, committer, idle[0], "e")
			idle = idle[1:]
			return out.count("e") > 0
		})
	}
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		server := redistest.Single(t, redistest.Own())
		try(t, server.Client(t), func(*luatx.Transactor) {
			redistest.Must(t, server.Kill())
			redistest.Must(t, server.Restart(t.Context()))
		})
	})
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		server := redistest.Single(t, redistest.Own())
		var cut time.Time
		try(t, server.Client(t), func(*luatx.Transactor) {
			cut = time.Now()
			redistest.Must(t, server.Admin(t).ClientKillByFilter(redistest.Soon(t), "TYPE", "pubsub").Err())
		})
		if took := time.Since(cut); took > 4*time.Second {
			t.Errorf("the relay listens again after %v", took)
		}
	})
	t.Run("migrated", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.Cluster(t)
		try(t, cluster.Client(t), func(tr *luatx.Transactor) {
			ctx := redistest.Soon(t)
			n := slot.Of(link.Of(tr).Runner.WakeSubscriptions(tr.Keyspace().Slots())[0][0])
			from, err := cluster.NodeForSlot(ctx, n)
			redistest.Must(t, err)
			masters, err := cluster.Masters(ctx)
			redistest.Must(t, err)
			to := masters[slices.IndexFunc(masters, func(s *redistest.Server) bool { return s != from })]
			redistest.Must(t, cluster.MigrateSlot(ctx, n, to))
		})
	})
}

// firstChannel returns an aggregate for each shard whose wake-ups go through the first channel.
func firstChannel(t testing.TB, tr *luatx.Transactor) (aggregates []string) {
	t.Helper()
	seen := make(map[int]bool)
	for i := range 40_000 {
		aggregate := strconv.Itoa(i)
		tag, err := tr.Keyspace().Tag(aggregate)
		redistest.Must(t, err)
		n := slot.Of("{" + tag + "}")
		if n < slot.Count/16 && !seen[n] {
			seen[n] = true
			aggregates = append(aggregates, aggregate)
		}
	}
	return aggregates
}

// TestWakeUpsAreCoalesced checks that a shard gets one wake-up for all that are requested while the last one is being sent,
// and that no commit waits for it.
func TestWakeUpsAreCoalesced(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	tr := newTransactor(t, redistest.Client(t, proxy.Addr()))
	hold := proxy.Hold(respproxy.Command("SPUBLISH"))
	link.Of(tr).Wake(0)
	redistest.Must(t, hold.Wait(redistest.Soon(t)))
	for range 1000 {
		link.Of(tr).Wake(0)
		link.Of(tr).Wake(1)
	}
	hold.Release()
	told := func() int { return max(proxy.Count("SPUBLISH"), proxy.Count("PUBLISH")) } // PUBLISH on older servers
	redistest.Eventually(t, "the others to be sent", func() bool { return told() == 3 })
	emit(t, tr, "a", "e")
	redistest.Eventually(t, "the commit to be told of", func() bool { return told() == 4 })
}

// TestNoWakeUpIsSentIfDisabledOrInline checks what disables wake-ups, and that a process sends none for events that it
// publishes itself.
func TestNoWakeUpIsSentIfDisabledOrInline(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]relay.Config{"inline": {SweepInterval: time.Hour}, "off": {NoInline: true, SweepInterval: 10 * time.Millisecond, NoWakeUps: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
			tr, out := newTransactor(t, redistest.Client(t, proxy.Addr()), func(c *luatx.Config) { c.NoWakeUps = cfg.NoWakeUps }), newSink()
			start(t, tr, out, cfg)
			emit(t, tr, "a", "e")
			redistest.Eventually(t, "the event to be published", func() bool { return out.count("e") == 1 })
			if n := proxy.Count("SPUBLISH") + proxy.Count("PUBLISH"); n != 0 {
				t.Errorf("%d wake-ups were sent", n)
			}
			if n := proxy.Count("SSUBSCRIBE"); cfg.NoWakeUps && n != 0 {
				t.Errorf("%d subscriptions were made", n)
			}
		})
	}
}

// TestDeniedWakeUpsAreLoggedOnceAndStopNothing checks that a user who may not publish or subscribe still commits and relays,
// and that each denial is logged once.
func TestDeniedWakeUpsAreLoggedOnceAndStopNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", "mute", "reset", "on", ">secret", "~*", "+@all", "-@pubsub").Err())
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "secret" })
	var log rig.Lines
	tr, out := newTransactor(t, client, func(c *luatx.Config) { c.Logger = log.Logger() }), newSink()
	start(t, tr, out, relay.Config{NoInline: true, SweepInterval: 10 * time.Millisecond, Logger: log.Logger()})
	for i := range 20 {
		id := fmt.Sprint("e", i)
		emit(t, tr, "a", id)
		redistest.Eventually(t, id+" to be published", func() bool { return out.count(id) == 1 })
	}
	for _, word := range []string{"wake-up failed", "wake-up subscription failed"} {
		redistest.Eventually(t, "a line about it", func() bool { return log.Count(word) > 0 })
		if n := log.Count(word); n != 1 {
			t.Errorf("%d lines say %q", n, word)
		}
	}
	if n := strings.Count(log.String(), "NOPERM"); n != 2 {
		t.Errorf("the log names NOPERM %d times:\n%s", n, log.String())
	}
}
