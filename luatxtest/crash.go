package luatxtest

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx/internal/test/respproxy"
)

// Point is where a process may die.
type Point string

// The points. Each is met by the next request of its kind.
const (
	// BeforeCommit: the handler has run, what it read may be old by now, and its commit never arrives.
	BeforeCommit Point = "before commit"
	// AfterCommit: the commit is done, nobody hears of it; neither an acknowledgement of its own nor inline publishing
	// follows.
	AfterCommit Point = "after commit"
	// BeforeAck: the commit is done and answered, and an acknowledgement of a stream's entry that is not part of it never
	// arrives.
	BeforeAck Point = "before ack"
	// AfterClaim: a relay has leased events, and published none.
	AfterClaim Point = "after claim"
	// BeforeSettle: a relay has published events, and could not say so: they will be published again.
	BeforeSettle Point = "before settle"
	// AfterSettle: a relay has published and settled events, and hears of nothing.
	AfterSettle Point = "after settle"
)

// Fault is what the network does to one commit.
type Fault string

// The faults. The process lives on, and finds out by itself.
const (
	// LoseRequest: the commit never arrives, and its connection breaks.
	LoseRequest Fault = "lose request"
	// LoseReply: the commit is done, its connection breaks in the place of the answer.
	LoseReply Fault = "lose reply"
	// Repeat: the commit arrives twice.
	Repeat Fault = "repeat"
)

// script matches calls of a script of the Transactor.
func (e *Env) script(name string) respproxy.Matcher {
	return func(cmd []string) bool {
		return len(cmd) > 1 && strings.EqualFold(cmd[0], "evalsha") && cmd[1] == e.scripts[name]
	}
}

// at is what of which request a point means.
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

// Crash lets the process die at the next request that is at the point: Context ends, and nothing that it sends from then on
// arrives. Restart is the next process. Look at Redis after that.
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

// Restart ends the process, if it lives, and returns the next one, on the same Redis. It returns when everything that the
// old one has sent is done. What the old one runs must have been told to end by its Context.
func (e *Env) Restart() *Env {
	e.t.Helper()
	e.die()
	_ = e.Client.Close() // whoever uses it is dead
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

// Disturb lets the network do something to the next commit.
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
