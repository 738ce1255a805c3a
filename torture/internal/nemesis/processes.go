package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/torture/internal/crew"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/work"
)

// stopped is the minimum time for which a process or server is paused. It exceeds leases and idle times.
const stopped = max(ground.Lease, ground.MaxIdle) + 300*time.Millisecond

var processKinds = []kind{
	{name: "kill-worker", track: "processes", fits: has(work.Worker), inflict: killProcess(work.Worker)},
	{name: "kill-relay", track: "processes", fits: has(work.Relay), inflict: killProcess(work.Relay)},
	{name: "die-before-script", track: "processes", fits: has(work.Worker), inflict: dieBeforeScript},
	{name: "stop-worker", track: "processes", fits: has(work.Worker), inflict: stopProcess(work.Worker)},
	{name: "stop-relay", track: "processes", fits: has(work.Relay), inflict: stopProcess(work.Relay)},
	{name: "clock", track: "processes", fits: func(n *Nemeses) bool { return n.Crew.CanSkew() }, inflict: wrongClock},
}

func has(role string) func(n *Nemeses) bool {
	return func(n *Nemeses) bool { return len(n.Crew.Members(role)) > 0 }
}

func (n *Nemeses) victim(rng *rand.Rand, role string) *crew.Member {
	members := n.Crew.Members(role)
	return members[rng.IntN(len(members))]
}

// killProcess kills a process (SIGKILL) and starts it again.
func killProcess(role string) func(context.Context, *Nemeses, *rand.Rand) (injury, error) {
	return func(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
		m := n.victim(rng, role)
		if err := m.Kill(); err != nil {
			return injury{target: m.Name()}, err
		}
		sleep.For(ctx, between(rng, 0, 500*time.Millisecond))
		return injury{target: m.Name()}, m.Start(0)
	}
}

// dieBeforeScript lets the servers store large bodies, but no script that refers to one arrives. Then it kills a worker, which has
// sent bodies and no script for them.
func dieBeforeScript(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	cut := respproxy.CutRequest()
	for _, proxy := range n.Site.Proxies {
		defer proxy.On(func(cmd []string) respproxy.Action {
			if strings.EqualFold(cmd[0], "EVALSHA") && slices.ContainsFunc(cmd, refersToBody) {
				return cut
			}
			return respproxy.Pass()
		})()
	}
	sleep.For(ctx, between(rng, 300*time.Millisecond, 1500*time.Millisecond))
	return killProcess(work.Worker)(ctx, n, rng)
}

// refersToBody reports whether an argument stands for the body of an event, which a SET has stored.
func refersToBody(arg string) bool {
	return len(arg) < 200 && strings.HasPrefix(strings.TrimPrefix(arg, "+"), "~")
}

// stopProcess stops a process (SIGSTOP) for longer than its leases.
func stopProcess(role string) func(context.Context, *Nemeses, *rand.Rand) (injury, error) {
	return func(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
		m := n.victim(rng, role)
		if err := m.Pause(); err != nil {
			return injury{target: m.Name()}, err
		}
		sleep.For(ctx, between(rng, stopped, stopped+time.Second))
		return injury{target: m.Name()}, m.Resume()
	}
}

// wrongClock replaces a worker for some seconds by one whose clock is wrong by an hour.
func wrongClock(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	m := n.victim(rng, work.Worker)
	off := time.Hour
	if rng.IntN(2) == 0 {
		off = -off
	}
	done := injury{target: fmt.Sprintf("%s by %v", m.Name(), off)}
	if err := errors.Join(m.Kill(), m.Start(off)); err != nil {
		return done, err
	}
	sleep.For(ctx, between(rng, 2*time.Second, 5*time.Second))
	return done, errors.Join(m.Kill(), m.Start(0))
}

var networkKinds = []kind{
	{name: "drop-replies", track: "network", inflict: chaos(respproxy.Chaos{DropReply: 0.05})},
	{name: Repeating, track: "network", inflict: chaos(respproxy.Chaos{Duplicate: 0.2})},
	{name: "delay", track: "network", inflict: chaos(respproxy.Chaos{Delay: 0.2, MaxDelay: 100 * time.Millisecond})},
	{name: "cut", track: "network", inflict: chaos(respproxy.Chaos{Cut: 0.03, DropRequest: 0.02})},
	{name: "silence", track: "network", inflict: chaos(respproxy.Chaos{Silent: 0.01})},
	{name: "cut-all", track: "network", inflict: func(_ context.Context, n *Nemeses, _ *rand.Rand) (injury, error) {
		for _, proxy := range n.Site.Proxies {
			proxy.CutAll()
		}
		return injury{}, nil
	}},
}

// chaos disturbs requests and replies for a while.
func chaos(c respproxy.Chaos) func(context.Context, *Nemeses, *rand.Rand) (injury, error) {
	return func(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
		for _, proxy := range n.Site.Proxies {
			c.Seed = rng.Uint64()
			defer proxy.Chaos(c)()
		}
		sleep.For(ctx, between(rng, 300*time.Millisecond, 1500*time.Millisecond))
		return injury{}, nil
	}
}
