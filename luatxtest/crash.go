package luatxtest

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx/internal/test/respproxy"
)

// Point is a point at which a process may die.
type Point string

// The points. The next request of the kind triggers the crash.
const (
	// BeforeCommit: the handler has run, but its commit never arrives. The values that it read may be outdated.
	BeforeCommit Point = "before commit"
	// AfterCommit: the commit took effect, but its reply is lost. No separate acknowledgement and no inline publishing follows.
	AfterCommit Point = "after commit"
	// BeforeAck: the commit took effect and its reply arrived, but a separate acknowledgement of a stream entry never arrives.
	BeforeAck Point = "before ack"
	// AfterClaim: a relay has leased events and published none.
	AfterClaim Point = "after claim"
	// BeforeSettle: a relay has published events but could not settle them, so they are published again.
	BeforeSettle Point = "before settle"
	// AfterSettle: a relay has published and settled events, but the reply is lost.
	AfterSettle Point = "after settle"
)

// Fault is a network fault that affects one commit.
type Fault string

// The faults. The process survives and must find out the outcome.
const (
	// LoseRequest: the commit never arrives, and its connection breaks.
	LoseRequest Fault = "lose request"
	// LoseReply: the commit takes effect, but its connection breaks instead of the reply.
	LoseReply Fault = "lose reply"
	// Repeat: the commit arrives twice.
	Repeat Fault = "repeat"
)

// script returns a matcher for calls of a script of the Transactor.
func (e *Env) script(name string) respproxy.Matcher {
	return func(cmd []string) bool {
		return len(cmd) > 1 && strings.EqualFold(cmd[0], "evalsha") && cmd[1] == e.scripts[name]
	}
}

// at returns the requests of a point and the action of the proxy.
func (e *Env) at(p Point) (respproxy.Matcher, respproxy.Action) {
	e.t.Helper()
	switch p {
	case BeforeCommit:
		return e.script("commit"), respproxy.CutRequest()
	case AfterCommit:
		return e.script("commit"), respproxy.CutReply()
	case BeforeAck:
		return respproxy.Command("XACK"), respproxy.CutRequest()
	case AfterClaim:
		return e.script("claim"), respproxy.CutReply()
	case BeforeSettle:
		return e.script("settle"), respproxy.CutRequest()
	case AfterSettle:
		return e.script("settle"), respproxy.CutReply()
	}
	e.t.Fatalf("luatxtest: no point is called %q", p)
	return nil, respproxy.Pass()
}

// Crash lets the process die at the next request of the point: Context ends, and later requests do not arrive. Restart starts the
// next process. Inspect Redis after Restart.
func (e *Env) Crash(p Point) {
	e.t.Helper()
	match, action := e.at(p)
	var dead atomic.Bool
	e.proxy.On(func(cmd []string) respproxy.Action {
		switch {
		case dead.Load():
			return respproxy.CutRequest()
		case match(cmd):
			dead.Store(true)
			e.die()
			return action
		}
		return respproxy.Pass()
	})
}

// Restart ends the process if it is alive, and returns the next one on the same Redis. It waits until Redis has processed all
// requests of the old process. Everything that the old process runs must use its Context.
func (e *Env) Restart() *Env {
	e.t.Helper()
	e.die()
	_ = e.Client.Close() // all its users are dead
	deadline := time.After(restartTimeout)
	for e.proxy.Connections() > 0 {
		select {
		case <-deadline:
			e.t.Fatal("luatxtest: Restart: connections of the old process are open: end what it runs with Env.Context")
		case <-time.After(time.Millisecond):
		}
	}
	if err := e.proxy.Close(); err != nil {
		e.t.Fatal(errors.Join(errors.New("luatxtest: Restart"), err))
	}
	next := &Env{t: e.t, cfg: e.cfg, addr: e.addr, mini: e.mini}
	next.begin()
	return next
}

const restartTimeout = 30 * time.Second

// Disturb applies a fault to the next commit.
func (e *Env) Disturb(f Fault) {
	e.t.Helper()
	actions := map[Fault]respproxy.Action{
		LoseRequest: respproxy.CutRequest(), LoseReply: respproxy.CutReply(), Repeat: respproxy.Duplicate(),
	}
	action, ok := actions[f]
	if !ok {
		e.t.Fatalf("luatxtest: no fault is called %q", f)
	}
	e.proxy.Next(1, e.script("commit"), action)
}
