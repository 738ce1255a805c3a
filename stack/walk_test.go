package stack_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/rekey"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/stream"
)

// legacyAccounts is the previous adapter, whose keys have no tags.
type legacyAccounts struct {
	client redis.UniversalClient
	lead   string
}

func (l legacyAccounts) key(customer, part string) string {
	return l.lead + ":account:" + customer + ":" + part
}

func (l legacyAccounts) Charge(ctx context.Context, c charge) error {
	return c.book(ctx, l.client, l.key(c.Customer, "sums"), l.key(c.Customer, "orders"), l.key(c.Customer, "journal"))
}

// load continuously feeds a service with charges: new ones, and an old one after every third.
type load struct {
	s    *service
	quit chan struct{}
	done sync.WaitGroup
	fed  []charge // without the repeated ones; read it only after stop
}

const loadCustomers = 6

func (s *service) load() *load {
	l := &load{s: s, quit: make(chan struct{})}
	l.done.Go(func() {
		ticker := time.NewTicker(4 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-l.quit:
				return
			case <-ticker.C:
			}
			c := charge{fmt.Sprint("c", i%loadCustomers), fmt.Sprintf("order-%05d", i), 1 + i*7919%1000}
			l.fed = append(l.fed, c)
			batch := []charge{c}
			if again := l.fed[i/2]; i%3 == 0 && s.charged(again) { // both modes may apply copies that they handle at the same time
				batch = append(batch, again)
			}
			s.feed(batch)
		}
	})
	return l
}

func (l *load) stop() []charge {
	close(l.quit)
	l.done.Wait()
	return l.fed
}

// charges returns how many charges were applied, under the names of both kinds.
func (s *service) charges() int {
	s.t.Helper()
	sum := 0
	for i := range loadCustomers {
		customer := fmt.Sprint("c", i)
		sums, _, _, err := redisAccounts{s.client, s.keyspace}.keys(customer)
		redistest.Must(s.t, err)
		for _, key := range []string{sums, legacyAccounts{lead: s.name}.key(customer, "sums")} {
			n, _ := strconv.Atoi(s.client.HGet(s.t.Context(), key, "charges").Val())
			sum += n
		}
	}
	return sum
}

// charged reports whether a charge was applied, under the names of either kind.
func (s *service) charged(c charge) bool {
	_, orders, _, err := redisAccounts{s.client, s.keyspace}.keys(c.Customer)
	for _, key := range []string{orders, legacyAccounts{lead: s.name}.key(c.Customer, "orders")} {
		if err == nil && s.client.SIsMember(s.t.Context(), key, c.Order).Val() {
			return true
		}
	}
	return false
}

// progress waits until a number of further charges have been applied.
func (s *service) progress() {
	s.t.Helper()
	from := s.charges()
	redistest.Eventually(s.t, "the service to get on", func() bool { return s.charges() >= from+60 })
}

// dieUnacknowledged kills a process after its messages were applied and before they were acknowledged, so that none is in the
// gap.
func (s *service) dieUnacknowledged(proxy *respproxy.Proxy, kill func()) {
	s.t.Helper()
	never := respproxy.NewHold()
	acks := respproxy.Command("XACK")
	var held atomic.Int64
	proxy.On(func(cmd []string) respproxy.Action {
		if acks(cmd) {
			held.Add(1)
			return respproxy.HoldBy(never)
		}
		return respproxy.Pass()
	})
	redistest.Eventually(s.t, "its workers to stand still", func() bool { return held.Load() >= workers })
	if applied := s.pendingAndApplied(); applied < workers {
		s.t.Errorf("%d messages are applied and not acknowledged", applied)
	}
	kill()
}

// pendingAndApplied returns the number of messages with legacy names that were applied and are pending. None may be marked only.
func (s *service) pendingAndApplied() (n int) {
	s.t.Helper()
	ctx := s.t.Context()
	for _, key := range s.streams("orders") {
		pending, err := s.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: "billing", Start: "-", End: "+", Count: 1000}).Result()
		redistest.Must(s.t, err)
		for _, p := range pending {
			entries, err := s.client.XRange(ctx, key, p.ID, p.ID).Result()
			redistest.Must(s.t, err)
			msg, err := stream.Unmarshal(p.ID, entries[0].Values)
			redistest.Must(s.t, err)
			c := charge{Order: msg.ID()}
			applied := s.client.SIsMember(ctx, legacyAccounts{lead: s.name}.key(msg.Subject(), "orders"), msg.ID()).Val()
			if applied {
				n++
			}
			if applied != s.marked(c) {
				s.t.Errorf("%s: applied %t, marked %t", c.Order, applied, s.marked(c))
			}
		}
	}
	return n
}

// TestStepsOfSwapGuideKeepEachMessageAndEventOnce follows docs/swap.md step by step with a service under load, and back again:
// it renames keys and changes the mode while processes of both modes run, one of which has died with an applied but
// unacknowledged message. Messages are repeated after every step.
func TestStepsOfSwapGuideKeepEachMessageAndEventOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	was := newService(t, client, modes[0])
	now := namedService(t, client, modes[1], was.name)
	now.cfg.Overlap, now.cfg.Retention = client, was.cfg.Retention
	quick := func(cfg *stream.SubscriberConfig) {
		cfg.MaxIdleTime, cfg.ClaimInterval = time.Second, 50*time.Millisecond
	}

	// Both relays run during all steps.
	was.forward(was.name + ":events")
	now.forward(was.name + ":events")

	// The service before the change, with keys without tags. One of its processes dies between EXEC and XACK.
	proxy := redistest.Proxy(t, server.Addr())
	stop := was.start(newHandler(legacyAccounts{client, was.name}), quick)
	kill := was.startChild(proxy.Addr(), "legacy")
	feeder := was.load()
	redistest.Eventually(t, "both processes to be at work", func() bool { return proxy.Count("XACK") > 5 })
	stop()
	was.dieUnacknowledged(proxy, kill)

	// The keys change first. Their writers have stopped, and the streams store new messages.
	m, err := rekey.ParseMap(was.name + ":account:{id}:{part}")
	redistest.Must(t, err)
	renamed := 0
	redistest.Must(t, rekey.Run(redistest.Soon(t), server.Admin(t), rekey.Config{
		Pattern: was.name + ":account:*", Map: m, Keyspace: was.keyspace, Apply: true,
	}, func(s rekey.Step) {
		if renamed++; s.Outcome != rekey.Renamed {
			t.Errorf("%+v", s)
		}
	}))
	if renamed != 3*loadCustomers {
		t.Errorf("%d keys were renamed", renamed)
	}
	stop = was.start(newHandler(redisAccounts{client, was.keyspace}), quick)
	was.progress()

	// Then the mode changes: the new processes start before the old ones end.
	stopScripted := now.start(newHandler(redisAccounts{client, now.keyspace}), quick)
	now.progress()
	stop()
	now.progress()

	// The mode changes back and forth again.
	stop = was.start(newHandler(redisAccounts{client, was.keyspace}), quick)
	stopScripted()
	was.progress()
	now.start(newHandler(redisAccounts{client, now.keyspace}), quick)
	stop()
	now.progress()

	fed := feeder.stop()
	redistest.Eventually(t, "everything to be acknowledged", now.drained)
	now.wantAccounts(fed, 1)
	if got := now.published(was.name+":events", eventsOf(fed)); len(got) != eventsOf(fed) {
		t.Errorf("%d events, want %d", len(got), eventsOf(fed))
	}
}

// TestModesChangeWithoutMarksIfOldProcessesEndFirst waits until nothing is pending. The forwarder has finished when its group
// has read and acknowledged all entries.
func TestModesChangeWithoutMarksIfOldProcessesEndFirst(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		was := newService(t, client, modes[0])
		now := namedService(t, client, modes[1], was.name)
		was.forward(was.name + ":events")
		charges := chargesOf(120, 5)
		stop := was.start(newHandler(redisAccounts{client, was.keyspace}))
		was.feed(charges[:60])
		redistest.Eventually(t, "half of the messages to be acknowledged", was.drained)
		stop()
		was.feed(charges[60:])
		if n := was.pending(); n != 0 {
			t.Errorf("%d messages are pending", n)
		}
		redistest.Eventually(t, "the forwarder to be done", func() bool { return was.isRead("outbox", stream.OutboxGroup) })

		now.forward(was.name + ":events")
		now.start(newHandler(redisAccounts{client, now.keyspace}))
		redistest.Eventually(t, "the other half to be acknowledged", now.drained)
		now.wantAccounts(charges, 1)
		if got := now.published(was.name+":events", eventsOf(charges)); len(got) != eventsOf(charges) {
			t.Errorf("%d events, want %d", len(got), eventsOf(charges))
		}
	})
}
