package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// envChild makes the test process a relay. Its value is a child as JSON.
const envChild = "LUATX_RELAY_TEST_CHILD"

// child is a relay in a process of its own. It publishes to a stream that shows the order of all events.
type child struct {
	Addrs      []string // of the server with the events
	Namespace  string
	Partitions int
	Broker     string // address of the server with the stream
	Stream     string
	Refuses    float64 // share of publishes that fail at random
	Poison     string  // the id of an event that always fails
	Killer     string  // the id of an event that ends the process
	Attempts   int
	Takes      time.Duration // average duration of a publish
	Once       bool          // publishes by Streams, so that a server that supports it adds each event once
}

const childLease = time.Second

func (c child) transactor(client redis.UniversalClient) (*luatx.Transactor, error) {
	return luatx.New(client, luatx.Config{
		Namespace: c.Namespace, Keyspace: luatx.Partitions(c.Partitions), Logger: slog.New(slog.DiscardHandler),
	})
}

// down returns a key of the broker. While it exists, publishing fails as unavailable.
func (c child) down() string { return c.Stream + ":down" }

func childMain() error {
	var c child
	if err := json.Unmarshal([]byte(os.Getenv(envChild)), &c); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
		cancel()
	}()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: c.Addrs})
	defer func() { _ = client.Close() }()
	broker := redis.NewClient(&redis.Options{Addr: c.Broker})
	defer func() { _ = broker.Close() }()
	tr, err := c.transactor(client)
	if err != nil {
		return err
	}
	publisher := relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		return c.publish(ctx, broker, events)
	})
	if c.Once {
		if publisher, err = c.once(broker); err != nil {
			return err
		}
	}
	r, err := relay.New(tr, publisher, relay.Config{
		Lease: childLease, Attempts: c.Attempts, BackoffBase: 20 * time.Millisecond, BackoffCap: 500 * time.Millisecond,
		PauseCap: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

func (c child) publish(ctx context.Context, broker *redis.Client, events []*message.RawMessage) []error {
	errs := make([]error, len(events))
	pipe := broker.Pipeline()
	down := pipe.Exists(ctx, c.down())
	if _, err := pipe.Exec(ctx); err != nil || down.Val() > 0 {
		for i := range errs {
			errs[i] = relay.Unavailable(errors.New("the broker is down"))
		}
		return errs
	}
	added := make([]*redis.StringCmd, len(events))
	for i, event := range events {
		switch {
		case event.ID() == c.Killer:
			_, _ = pipe.Exec(ctx) // the events before it are published
			os.Exit(1)
		case event.ID() == c.Poison || rand.Float64() < c.Refuses:
			errs[i] = errors.New("refused")
		default:
			added[i] = pipe.XAdd(ctx, &redis.XAddArgs{Stream: c.Stream, Values: []any{"id", event.ID(), "data", event.Data}})
		}
	}
	_, _ = pipe.Exec(ctx)               // each command holds its error
	<-time.After(rand.N(2*c.Takes + 1)) // time to be killed while events are published but not settled
	for i, cmd := range added {
		if cmd != nil {
			errs[i] = relay.Unavailable(cmd.Err())
		}
	}
	return errs
}

// team is a number of relays in processes of their own, which are killed one after another.
type team struct {
	t        *testing.T
	env      string
	children []*exec.Cmd
}

func newTeam(t *testing.T, c child, size int) *team {
	t.Helper()
	text, err := json.Marshal(c)
	redistest.Must(t, err)
	crew := &team{t: t, env: envChild + "=" + string(text)}
	for range size {
		crew.children = append(crew.children, crew.start())
	}
	t.Cleanup(crew.end)
	return crew
}

func (c *team) start() *exec.Cmd {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), c.env)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // it ends when its parent does
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return cmd
}

func (c *team) end() {
	for _, cmd := range c.children {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}
	c.children = nil
}

// killOne kills a relay while it works and starts another.
func (c *team) killOne() {
	i := rand.N(len(c.children))
	_ = c.children[i].Process.Kill()
	_ = c.children[i].Wait() // killed
	c.children[i] = c.start()
}

// feeder commits events with and without ordering key. An id consists of the key and a number.
type feeder struct {
	tr    *luatx.Transactor
	lanes int
	next  []int // of each ordering key
	plain int
	sum   int
}

// feed commits one transaction of ten events, five of them ordered.
func (f *feeder) feed(ctx context.Context) error {
	const each = 5
	lane := rand.N(f.lanes)
	aggregate := fmt.Sprint("lane", lane)
	_, err := f.tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
		for i := range each {
			ordered := fmt.Sprintf("%s/%d", aggregate, f.next[lane]+i)
			if err := tx.Emit(luatx.Event{ID: ordered, Body: bodyOf(ordered), Key: aggregate}); err != nil {
				return err
			}
			if err := tx.Emit(luatx.Event{ID: fmt.Sprintf("plain/%d", f.plain+i), Body: bodyOf(fmt.Sprintf("plain/%d", f.plain+i))}); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		f.next[lane] += each
		f.plain += each
		f.sum += 2 * each
	}
	return err
}

// bodyOf returns the event with an id, which is also its data.
func bodyOf(id string) []byte {
	return fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"t","data":%q}`, id, id)
}

// published reads the stream. It returns the ids in the order of their first publication, and the number of duplicates.
func published(t *testing.T, broker *redis.Client, stream string) (first []string, again int) {
	t.Helper()
	seen := make(map[string]bool)
	for at := "-"; ; {
		entries, err := broker.XRangeN(redistest.Soon(t), stream, at, "+", 10_000).Result()
		redistest.Must(t, err)
		if len(entries) > 0 && entries[0].ID == at { // a range without its first entry needs Redis 6.2
			entries = entries[1:]
		}
		for _, entry := range entries {
			at = entry.ID
			id := fmt.Sprint(entry.Values["id"])
			if data := fmt.Sprint(entry.Values["data"]); data != id && data != fmt.Sprintf("%q", id) {
				t.Fatalf("event %s has the data %s", id, data)
			}
			if seen[id] {
				again++
				continue
			}
			seen[id] = true
			first = append(first, id)
		}
		if len(entries) == 0 {
			return first, again
		}
	}
}

// wantAll fails the test unless every event is published, no other event is, and each ordering key is in order.
func (f *feeder) wantAll(t *testing.T, ids []string) {
	t.Helper()
	if len(ids) != f.sum {
		t.Errorf("%d events published, %d committed", len(ids), f.sum)
	}
	next := make(map[string]int)
	for _, id := range ids {
		lane, number, _ := strings.Cut(id, "/")
		if lane == "plain" {
			continue
		}
		if number != fmt.Sprint(next[lane]) {
			t.Fatalf("%s was published where %s/%d was to be", id, lane, next[lane])
		}
		next[lane]++
	}
}

// TestKilledRelaysLoseNoEventAndKeepOrder checks that relays that are killed all the time lose nothing. Every event is
// published under its id, ordered ones in order. An outage of the broker costs no attempt, even if it lasts longer than all
// attempts would. No state is left behind.
func TestKilledRelaysLoseNoEventAndKeepOrder(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, client redis.UniversalClient, addrs []string, plan plan) {
		t.Helper()
		broker := redistest.Single(t, redistest.Own())
		c := child{
			Addrs: addrs, Namespace: redistest.Namespace(t), Partitions: 32, Broker: broker.Addr(), Stream: "published",
			Refuses: 0.05, Attempts: 10, Takes: 10 * time.Millisecond,
		}
		tr, err := c.transactor(client)
		redistest.Must(t, err)
		f := &feeder{tr: tr, lanes: plan.lanes, next: make([]int, plan.lanes)}
		crew := newTeam(t, c, 4)
		plan.run(t, f, crew, broker.Admin(t), c.down())
		store, admin := outbox.NewStore(tr), broker.Admin(t)
		began := time.Now()
		waitFor(t, time.Minute, "everything to be sent", func() bool {
			counts, err := store.Counts(t.Context())
			return err == nil && counts.Sent == int64(f.sum)
		})
		crew.end()
		ids, again := published(t, admin, c.Stream)
		t.Logf("%d events in %d lanes and none, %d kills: all sent %v after the last, %d published more than once",
			f.sum, plan.lanes, plan.kills, time.Since(began).Round(time.Millisecond), again)
		f.wantAll(t, ids)
		if got := counts(t, tr); got.Leased != 0 || got.Pending != 0 || got.Parked != 0 {
			t.Errorf("left: %+v", got)
		}
		wantClean(t, client, tr, f.sum)
	}
	full, short := plan{events: 100_000, lanes: 400, kills: 120, down: 5 * time.Second}, plan{events: 5_000, lanes: 100, kills: 12, down: time.Second}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		p := short
		if os.Getenv("LUATX_VERIFY") != "" {
			p = full
		}
		server := redistest.Shared(t)
		run(t, server.Client(t), []string{server.Addr()}, p)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.SharedCluster(t)
		run(t, cluster.Client(t), cluster.Addrs(), short)
	})
}

// plan is the course of a test: kills, events all the while, and two outages of the broker.
type plan struct {
	events, lanes, kills int
	down                 time.Duration
}

func (p plan) run(t *testing.T, f *feeder, crew *team, broker *redis.Client, down string) {
	t.Helper()
	ctx := t.Context()
	var killed atomic.Int64
	var feeding sync.WaitGroup
	feeding.Go(func() { // in step with the kills
		for f.sum < p.events && ctx.Err() == nil {
			if f.sum >= p.events*int(killed.Load()+1)/p.kills {
				<-time.After(time.Millisecond)
				continue
			}
			if err := f.feed(ctx); err != nil {
				t.Error(err)
				return
			}
		}
	})
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for k := range p.kills {
		<-tick.C
		if slices.Contains([]int{p.kills / 4, p.kills * 5 / 8}, k) {
			if err := broker.Set(ctx, down, 1, p.down).Err(); err != nil {
				t.Error(err)
			}
		}
		crew.killOne()
		killed.Add(1)
	}
	feeding.Wait()
}

func waitFor(t *testing.T, patience time.Duration, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// wantClean fails the test unless the given number of sent events left nothing but their ids, and the counts are exact.
func wantClean(t *testing.T, client redis.UniversalClient, tr *luatx.Transactor, sum int) {
	t.Helper()
	total := make(map[string]int)
	for _, n := range tr.Keyspace().Slots() {
		home := link.Of(tr).Scripts.Shard(n)
		for _, name := range []string{"pending", "attempts", "errors", "parked", "headers", "lanes"} {
			if key := home.Key(name); client.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("%s is left", key)
			}
		}
		for _, name := range []string{"events", "bytes", "parked", "parked_bytes", "enqueued", "sent"} {
			if count := rig.Count(t, tr, n, name); count < 0 {
				t.Errorf("slot %d: %s is %d", n, name, count)
			} else {
				total[name] += int(count)
			}
		}
	}
	if total["events"] != 0 || total["bytes"] != 0 || total["parked"] != 0 || total["enqueued"] != sum || total["sent"] != sum {
		t.Errorf("counts of %d events: %v", sum, total)
	}
}

// TestPoisonEventsAreParkedAndOthersPublished checks two events, one that always fails and one that crashes the process of its
// relay. Both are parked when their attempts are used up, other events are published, and both are published after a re-arm if
// the publisher accepts them.
func TestPoisonEventsAreParkedAndOthersPublished(t *testing.T) {
	t.Parallel()
	client, broker := redistest.Shared(t).Client(t), redistest.Single(t, redistest.Own())
	c := child{
		Addrs: []string{client.Options().Addr}, Namespace: redistest.Namespace(t), Partitions: 2, Broker: broker.Addr(), Stream: "published",
		Poison: "poison", Killer: "killer", Attempts: 3,
	}
	tr, err := c.transactor(client)
	redistest.Must(t, err)
	neighbours := numbered("n", 40)
	var events []luatx.Event
	for _, id := range slices.Concat(neighbours[:20], []string{c.Poison, c.Killer}, neighbours[20:]) {
		events = append(events, luatx.Event{ID: id, Body: bodyOf(id)})
	}
	commit(t, tr, "a", events...)
	ctx, stop := context.WithCancel(t.Context())
	deaths := newTeam(t, c, 0).keep(ctx, 2)
	waitFor(t, time.Minute, "the two to be parked and the others sent", func() bool {
		got := counts(t, tr)
		return got.Parked == 2 && got.Sent == 40
	})
	stop()
	if n := deaths(); n != c.Attempts {
		t.Errorf("the killer has killed %d relays, want %d", n, c.Attempts)
	}
	if ids, _ := published(t, broker.Admin(t), c.Stream); len(ids) != len(neighbours) {
		t.Errorf("%d events published: %v", len(ids), ids)
	}
	store, why := outbox.NewStore(tr).As("operator"), map[string]string{c.Poison: "exhausted refused", c.Killer: "crashed the lease ran out"}
	for p, err := range store.Parked(t.Context(), outbox.Filter{}) {
		redistest.Must(t, err)
		if got := p.Class + " " + p.Error; !strings.HasPrefix(got, why[p.ID]) || p.Attempts != c.Attempts || p.Message.ID() != p.ID {
			t.Errorf("parked: %+v", p)
		}
		if len(p.History) == 0 || p.History[0].Attempt != c.Attempts || p.History[0].Text != p.Error { // a crashed process records no attempt
			t.Errorf("%s has the history %+v", p.ID, p.History)
		}
		if n, err := store.Rearm(t.Context(), p.Slot, p.ID); n.Done() != 1 || err != nil {
			t.Errorf("re-armed: %v, %v", n, err)
		}
	}
	out := newSink()
	start(t, tr, out, relay.Config{Attempts: 1, SweepInterval: 10 * time.Millisecond})
	redistest.Eventually(t, "both to be published", func() bool { return out.count(c.Poison) == 1 && out.count(c.Killer) == 1 })
	redistest.Eventually(t, "nothing to be left", func() bool { return counts(t, tr) == outbox.Counts{Sent: 42} })
}

// keep keeps a number of relays running until ctx ends. The returned function waits for their end and returns how many have
// crashed.
func (c *team) keep(ctx context.Context, size int) (deaths func() int) {
	var running sync.WaitGroup
	var died atomic.Int64
	for range size {
		running.Go(func() {
			for ctx.Err() == nil {
				cmd := c.start()
				ended := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
				_ = cmd.Wait() // its exit status does not matter
				if ended() {
					died.Add(1)
				}
			}
		})
	}
	wait := func() int {
		running.Wait()
		return int(died.Load())
	}
	c.t.Cleanup(func() { wait() })
	return wait
}
