package trigger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

// resumesWithin is the time within which a pub/sub trigger must receive again after its server is back.
const resumesWithin = 2 * time.Second

// storm runs triggers of every kind under load, on a server that writes to disk before it replies.
type storm struct {
	t       *testing.T
	server  *redistest.Server
	proxy   *respproxy.Proxy
	client  *redis.Client // not through the proxy
	stream  *stream
	channel string

	grouped, heard    *effects
	plain             *effects
	triggers          map[string]*started
	confirmed, unsure []string
	added             atomic.Int64
	resumed           []time.Duration
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	server := redistest.Single(t, redistest.Config("appendonly yes", "appendfsync always"))
	x := &storm{
		t: t, server: server, proxy: redistest.Proxy(t, server.Addr()), channel: "news",
		client:  redistest.Admin(t, server.Addr(), func(o *redis.Options) { o.MaxRetries = -1 }), // a repeated XADD would add the entry twice
		grouped: &effects{}, heard: &effects{}, plain: &effects{}, triggers: map[string]*started{},
	}
	x.stream = newStream(t, x.client)
	note := func(e *effects) trigger.Func {
		return func(_ context.Context, msg *message.RawMessage) error {
			if rand.N(50) == 0 {
				return fmt.Errorf("bad luck with %s", msg.ID())
			}
			e.add(text(t, msg))
			return nil
		}
	}
	url := trigger.Connector{URL: "redis://" + x.proxy.Addr() + "?read_timeout=1s&dial_timeout=1s"}
	config := func(run trigger.Func, group string) trigger.Config {
		cfg := x.stream.config(run)
		cfg.Connector, cfg.Group, cfg.Concurrency = url, group, 3
		cfg.ClaimInterval, cfg.MaxIdleTime = time.Second, 5*time.Second
		return cfg
	}
	through := redistest.Client(t, x.proxy.Addr(), func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	x.triggers["transactions"] = begin(t, config(transactional(t, through, x.counts(), nil), "transactions"))
	x.triggers["group"] = begin(t, config(note(x.grouped), "plain"))
	without := config(note(x.plain), "")
	without.LastID, without.Concurrency, without.LastIDKey = "0", 1, x.stream.key+":last"
	x.triggers["no group"] = begin(t, without)
	listens := channelConfig(t, url, x.heard, x.channel)
	x.triggers["pub/sub"] = begin(t, listens)
	return x
}

func (x *storm) counts() string { return x.stream.key + ":counts" }

// load adds entries and publishes messages until stop is called. A write without a reply may have happened or not.
func (x *storm) load() (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			number := fmt.Sprint(n)
			err := x.client.XAdd(ctx, &redis.XAddArgs{Stream: x.stream.key, Values: []any{"data", number}}).Err()
			if err == nil {
				x.confirmed = append(x.confirmed, number)
				x.added.Add(1)
			} else {
				x.unsure = append(x.unsure, number)
			}
			x.client.Publish(ctx, x.channel, number)
			cancel()
		}
	})
	return func() { close(done); running.Wait() }
}

// hearsAgain waits until the pub/sub trigger receives new messages, and records how long that took.
func (x *storm) hearsAgain() {
	x.t.Helper()
	from := time.Now()
	word := "again " + redistest.Tag(x.t)
	redistest.Eventually(x.t, "the pub/sub trigger to hear", func() bool {
		x.client.Publish(x.t.Context(), x.channel, word)
		return slices.Contains(x.heard.list(), word)
	})
	x.resumed = append(x.resumed, time.Since(from))
}

// more waits until n further entries were added.
func (x *storm) more(n int64) {
	x.t.Helper()
	want := x.added.Load() + n
	redistest.Eventually(x.t, "entries to be added", func() bool { return x.added.Load() >= want })
}

// judge checks that no confirmed entry is lost, and that each transaction took effect once.
func (x *storm) judge() {
	x.t.Helper()
	for name, effects := range map[string]*effects{"group": x.grouped, "no group": x.plain} {
		x.wantAll(name, func() []string { return effects.list() })
	}
	x.wantAll("transactions", func() []string { return x.client.HKeys(x.t.Context(), x.counts()).Val() })
	redistest.Eventually(x.t, "nothing to be pending", func() bool {
		groups, err := x.client.XInfoGroups(x.t.Context(), x.stream.key).Result()
		return err == nil && len(groups) == 2 && groups[0].Pending == 0 && groups[1].Pending == 0
	})
	wantOnce(x.t, x.client, x.counts(), x.confirmed)
	slowest := time.Duration(0)
	for _, d := range x.resumed {
		slowest = max(slowest, d)
	}
	if slowest > resumesWithin {
		x.t.Errorf("pub/sub resumed after %v", slowest)
	}
	stats := x.triggers["pub/sub"].Stats()
	x.t.Logf("%d entries, %d more unanswered; pub/sub resumed %d times within %v, %d gaps of %v together", len(x.confirmed),
		len(x.unsure), len(x.resumed), slowest, stats.Gaps.Count, stats.Gaps.Total)
	for name, tr := range x.triggers {
		redistest.Eventually(x.t, name+" to be done", func() bool { return tr.Stats().InFlight == 0 })
		stats := tr.Stats()
		x.t.Logf("%s: %+v", name, stats)
		if stats.InFlight != 0 || stats.Owed != 0 || !tr.Health().Ready {
			x.t.Errorf("%s: %+v, %+v", name, stats, tr.Health())
		}
	}
}

// wantAll waits until all confirmed entries have run, as long as the backlog shrinks.
func (x *storm) wantAll(name string, effects func() []string) {
	x.t.Helper()
	missing := func() (left []string) {
		ran := map[string]bool{}
		for _, n := range effects() {
			ran[n] = true
		}
		for _, n := range x.confirmed {
			if !ran[n] {
				left = append(left, n)
			}
		}
		return left
	}
	for left := missing(); len(left) > 0; {
		waiting := len(left)
		redistest.Eventually(x.t, fmt.Sprintf("%s: one of %d entries to run, the first of which is %s", name, waiting, left[0]), func() bool {
			left = missing()
			return len(left) < waiting
		})
	}
}

// often returns the number of repetitions, which is smaller in quick tests.
func often(quick, long int) int {
	if verifying() {
		return long
	}
	return quick
}

func TestTriggersLoseNoConfirmedEntryDuringFaults(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(x *storm){
		"kills": kills, "cuts": cuts, "pause": pause, "torn connections": tornConnections,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newStorm(t)
			stop := x.load()
			trouble(x)
			stop()
			x.judge()
			if n := x.triggers["pub/sub"].Stats().Gaps.Count; name == "kills" && n < int64(often(2, 10)) {
				t.Errorf("%d gaps were counted", n)
			}
		})
	}
}

// kills ends the server by SIGKILL and starts it again.
func kills(x *storm) {
	for n := range often(2, 10) {
		x.more(200)
		redistest.Must(x.t, x.server.Kill())
		lasts(time.Duration(often(0, n%3)) * 2 * time.Second) // until backoffs have reached their maximum
		redistest.Must(x.t, x.server.Restart(redistest.Soon(x.t)))
		x.hearsAgain()
	}
}

// cuts breaks every connection repeatedly.
func cuts(x *storm) {
	for n := range often(20, 100) {
		lasts(30 * time.Millisecond)
		x.proxy.CutAll()
		if n%10 == 9 {
			x.hearsAgain()
		}
	}
}

// pause stops the server's process and continues it.
func pause(x *storm) {
	x.hearsAgain()
	x.more(200)
	redistest.Must(x.t, x.server.Pause())
	lasts(time.Duration(often(1500, 5000)) * time.Millisecond)
	redistest.Must(x.t, x.server.Resume())
	x.hearsAgain()
}

// tornConnections drops requests and replies at random.
func tornConnections(x *storm) {
	calm := x.proxy.Chaos(respproxy.Chaos{Seed: 9, DropRequest: 0.02, DropReply: 0.02, Cut: 0.02, Duplicate: 0, Delay: 0.05})
	lasts(time.Duration(often(3000, 30000)) * time.Millisecond)
	calm()
	x.hearsAgain()
}

// lasts continues a fault for a while.
func lasts(d time.Duration) { <-time.After(d) }
