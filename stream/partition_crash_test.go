//go:build unix

package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
)

// crew is a number of members in processes of their own, which are killed one after another.
type crew struct {
	t        *testing.T
	p        *parted
	env      string
	children []*exec.Cmd
	inHand   int64 // entries that were pending for members when they were killed
}

func newCrew(t *testing.T, p *parted, partitions, size int, lease time.Duration, addrs []string) *crew {
	t.Helper()
	c := &crew{t: t, p: p, env: fmt.Sprintf("%s=%s %d %s %t %s", envMember, p.ns, partitions, lease, p.positions, strings.Join(addrs, " "))}
	for range size {
		c.children = append(c.children, c.start())
	}
	t.Cleanup(func() {
		for _, child := range c.children {
			end(child)
		}
	})
	return c
}

func (c *crew) start() *exec.Cmd {
	child := exec.CommandContext(c.t.Context(), os.Args[0])
	child.Env = append(os.Environ(), c.env)
	child.Stderr = os.Stderr
	_, err := child.StdinPipe() // a member ends when its parent does
	redistest.Must(c.t, err)
	redistest.Must(c.t, child.Start())
	return child
}

func end(child *exec.Cmd) {
	_ = child.Process.Kill()
	_ = child.Wait() // killed
}

// killOne kills a member while it works and starts another.
func (c *crew) killOne(ctx context.Context) {
	i := rand.N(len(c.children))
	end(c.children[i])
	for _, key := range c.p.keys() {
		if pending, err := c.p.client.XPending(ctx, key, "shop").Result(); err == nil {
			for consumer, n := range pending.Consumers {
				if strings.Contains(consumer, fmt.Sprintf("-%d-", c.children[i].Process.Pid)) {
					c.inHand += n
				}
			}
		}
	}
	c.children[i] = c.start()
}

// stall stops a member, which resumes when the returned function is called.
func (c *crew) stall() (wake func()) {
	child := c.children[rand.N(len(c.children))]
	redistest.Must(c.t, child.Process.Signal(syscall.SIGSTOP))
	return func() { _ = child.Process.Signal(syscall.SIGCONT) } // it may be dead by then
}

func TestKilledMembersLoseNoMessageAndKeepOrder(t *testing.T) {
	t.Parallel()
	kills, rounds, aggregates := 3, 15, 200
	if os.Getenv("LUATX_VERIFY") != "" {
		kills, rounds, aggregates = 60, 100, 500
	}
	killMembers(t, kills, rounds, aggregates, false)
}

func TestKilledMembersWithPositionsLoseNoMessageAndKeepOrder(t *testing.T) {
	t.Parallel()
	kills, rounds, aggregates := 3, 20, 500
	if os.Getenv("LUATX_VERIFY") != "" {
		kills, rounds = 60, 200
	}
	killMembers(t, kills, rounds, aggregates, true)
}

// killMembers kills and stalls members that work, and compares their work with what was published, on a server and on a cluster.
func killMembers(t *testing.T, kills, rounds, aggregates int, positions bool) {
	t.Helper()
	test := func(t *testing.T, client redis.UniversalClient, addrs []string) {
		t.Helper()
		const lease = 500 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(kills)*3*time.Second+30*time.Second)
		defer cancel()
		p := newParted(t, client, 16)
		p.positions = positions
		p.publish(t, aggregates, 0, 1)
		c := newCrew(t, p, 16, 3, lease, addrs)
		redistest.Eventually(t, "the first messages", func() bool { return len(p.wrong(ctx, aggregates, 1)) == 0 })
		begun, published, wake, stalls := time.Now(), 1, func() {}, 0
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for k := range kills {
			<-second.C
			wake()
			until := 1 + (rounds-1)*(k+1)/kills
			p.publish(t, aggregates, published, until) // work during which the kill happens
			published = until
			if wake = func() {}; k%2 == 1 {
				wake = c.stall()
				stalls++
			}
			c.killOne(ctx)
		}
		last := time.Now()
		<-second.C
		wake()
		for p.open(ctx) != 0 && ctx.Err() == nil {
			<-second.C
		}
		done := time.Now()
		p.wantApplied(t, aggregates, rounds)
		t.Logf("%d messages of %d keys, %d kills, %d stalls of two leases, %d entries in the hands of the killed: all done %v after the start, %v after the last kill",
			aggregates*rounds, aggregates, kills, stalls, c.inHand, done.Sub(begun).Round(time.Millisecond), done.Sub(last).Round(time.Millisecond))
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		test(t, server.Client(t), []string{server.Addr()})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.SharedCluster(t)
		test(t, cluster.Client(t), cluster.Addrs())
	})
}

func TestMemberThatStallsInAHandlerChangesNothingLater(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	proxy := redistest.Proxy(t, server.Addr())
	through := redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.ReadTimeout = 300 * time.Millisecond })
	p := newParted(t, server.Client(t), 1)
	p.publish(t, 3, 0, 10)
	cfg := p.config()
	cfg.Lease, cfg.BatchSize = 500*time.Millisecond, 8

	hold, stalled, woken := respproxy.NewHold(), make(chan struct{}), make(chan struct{})
	wake := sync.OnceFunc(func() { close(woken) })
	var stalls, fenced atomic.Int64
	proxy.On(func(cmd []string) respproxy.Action {
		if stalls.Load() > 0 && strings.EqualFold(cmd[0], "evalsha") {
			return respproxy.HoldBy(hold)
		}
		return respproxy.Pass()
	})
	old, err := p.newApplier(through, cfg, func(_ context.Context, id string) error {
		if id == "a1/4" && stalls.Add(1) == 1 {
			close(stalled)
			<-woken
		}
		return nil
	})
	redistest.Must(t, err)
	old.failed = func(err error) {
		if errors.Is(err, luatx.ErrFenced) {
			fenced.Add(1)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- old.run(ctx) }()
	defer func() { wake(); cancel(); redistest.Must(t, <-ended) }()

	<-stalled
	taken, goOn := make(chan struct{}), make(chan struct{})
	taking, release := sync.OnceFunc(func() { close(taken) }), sync.OnceFunc(func() { close(goOn) })
	defer release()
	p.consume(t, p.client, cfg, func(_ context.Context, id string) error {
		if id == "a1/4" {
			taking()
			<-goOn
		}
		return nil
	})
	<-taken
	wake()
	hold.Release()
	redistest.Eventually(t, "the late commit to be turned away", func() bool { return fenced.Load() > 0 })
	release()
	p.wantApplied(t, 3, 10)
	p.publish(t, 3, 10, 20)
	p.wantApplied(t, 3, 20)
}

func TestLateReadOfAFormerOwnerReturnsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	proxy := redistest.Proxy(t, server.Addr())
	p := newParted(t, server.Client(t), 1)
	cfg := p.config()
	cfg.Lease = 500 * time.Millisecond

	slow := newParted(t, redistest.Client(t, proxy.Addr()), 1)
	slow.ns, slow.keyspace = p.ns, p.keyspace
	old := slow.join(t, cfg, func(msg *message.RawMessage) { msg.Release() })
	p.wantHolding(t, "1", old)
	hold := respproxy.NewHold()
	proxy.On(func(cmd []string) respproxy.Action {
		if strings.EqualFold(cmd[0], "evalsha") {
			return respproxy.HoldBy(hold)
		}
		return respproxy.Pass()
	})
	taken, goOn, book := make(chan struct{}, 9), make(chan struct{}), &handledBook{}
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	p.join(t, cfg, func(msg *message.RawMessage) {
		taken <- struct{}{}
		<-goOn
		book.ack(msg)
	})
	p.publish(t, 1, 0, 3)
	<-taken
	hold.Release()
	p.logs.want(t, "stream: partition lost to another member", 1)
	if got := old.Stats(); got.Delivered != 0 {
		t.Errorf("the former owner was given %d messages", got.Delivered)
	}
	release()
	book.wantInOrder(t, 1, 3)
}

func TestPartitionContinuesWhileItsSlotMigrates(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	if b, err := redistest.Find(); err == nil && b.AtLeast(7, 2) && !b.AtLeast(7, 4) {
		t.Skip("Redis 7.2 ends where a slot moves away from a client that waits for entries: docs/servers.md")
	}
	client := cluster.Client(t)
	ctx := redistest.Soon(t)
	p := newParted(t, client, 4)
	moving := slot.OfTag(p.keyspace.Tags()[0])
	cfg := p.config()
	p.publish(t, 20, 0, 5)
	p.consume(t, client, cfg, nothing)
	p.consume(t, client, cfg, nothing)
	for round := range 3 {
		from, err := cluster.NodeForSlot(ctx, moving)
		redistest.Must(t, err)
		masters, err := cluster.Masters(ctx)
		redistest.Must(t, err)
		to := masters[slices.IndexFunc(masters, func(s *redistest.Server) bool { return s != from })]
		p.publish(t, 20, 5+5*round, 10+5*round)
		redistest.Must(t, cluster.MigrateSlot(ctx, moving, to))
	}
	p.wantApplied(t, 20, 20)
}

// TestMembersSurviveAServerThatStopsForgetsOrRestarts checks that members outlast a server that is stopped for longer than
// their leases, loses its scripts, or is killed and restarted.
func TestMembersSurviveAServerThatStopsForgetsOrRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own(), redistest.Config("appendonly yes", "appendfsync always"))
	client := server.Client(t, func(o *redis.Options) { o.ReadTimeout = 300 * time.Millisecond })
	ctx := redistest.Soon(t)
	p := newParted(t, client, 4)
	cfg := p.config()
	cfg.Lease = 300 * time.Millisecond
	faults := []func(){
		func() { redistest.Must(t, server.Admin(t).ScriptFlush(ctx).Err()) },
		func() {
			redistest.Must(t, server.Pause())
			paused := time.Now()
			redistest.Eventually(t, "two leases to pass", func() bool { return time.Since(paused) > 2*cfg.Lease })
			redistest.Must(t, server.Resume())
		},
		func() {
			redistest.Must(t, server.Kill())
			redistest.Must(t, server.Restart(ctx))
		},
	}
	p.publish(t, 20, 0, 5)
	p.wantHolding(t, "2 2", p.consume(t, client, cfg, nothing), p.consume(t, client, cfg, nothing))
	for round, fault := range faults {
		p.publish(t, 20, 5+5*round, 10+5*round)
		fault()
	}
	p.wantApplied(t, 20, 20)
}
