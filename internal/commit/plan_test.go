package commit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

// service sends transactions of many kinds.
type service struct {
	*twins

	ctx  context.Context
	sent int
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{twins: newTwins(t), ctx: t.Context()}
	c := s.commit(t, 0)
	c.Events = []shard.Event{{ID: "first", Body: []byte("x")}} // the general script handles the first one of a shard
	s.send(t, c)
	for first := s.clock(t); s.clock(t) == first; { // a compiled script passes the first millisecond of an inbox to the general one
	}
	return s
}

// clock returns the server's time, ms.
func (s *service) clock(t *testing.T) int64 {
	t.Helper()
	now, err := s.clients[1].Time(s.ctx).Result()
	redistest.Must(t, err)
	return now.UnixMilli()
}

// commit returns a transaction of the kind with the given number of values.
func (s *service) commit(t *testing.T, values int) *Commit {
	t.Helper()
	s.sent++
	args := []any{"HSET", "{" + s.tag() + "}h"}
	for i := range values + 1 {
		args = append(args, fmt.Sprint(i), "v")
	}
	return &Commit{
		Shard: s.shards.Shard(0), Digest: fmt.Sprintf("digest%010d", s.sent), Token: fmt.Sprintf("%08d00", s.sent),
		NotAfter: time.Now().Add(time.Hour), Commands: []Command{{Head: "h0", Args: args}}, Keys: []string{args[1].(string)},
	}
}

func (s *service) tag() string { return "1bz" } // of slot 0

func (s *service) send(t *testing.T, batch ...*Commit) {
	t.Helper()
	s.senders[1].Send(s.ctx, time.Time{}, batch)
	for _, c := range batch {
		if c.Err != nil || c.Outcome.State != Committed && c.Outcome.State != Duplicate {
			t.Fatalf("%+v, %v", c.Outcome, c.Err)
		}
	}
}

func (s *service) compile(t *testing.T, values int) {
	t.Helper()
	c := s.commit(t, values)
	s.senders[1].prepare(c)
	shape, ok := shapeOf(c)
	if !ok || !c.plan.settled.CompareAndSwap(false, true) {
		t.Fatalf("the plan of %d values is not to be compiled", values)
	}
	s.senders[1].compile(&compiled{shape: shape, plan: c.plan, sender: s.senders[1]})
}

// compiledOne waits until plans are compiled, and fails unless there is exactly one.
func (s *service) compiledOne(t *testing.T) {
	t.Helper()
	if s.senders[1].Wait(); len(s.plans()) != 1 {
		t.Fatalf("%d plans are compiled", len(s.plans()))
	}
}

func (s *service) plans() []Plan { return s.senders[1].Plans() }

func TestPlanIsCompiledOnceItIsSentOften(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.senders[1].CompileAfter(5)
	for range 4 {
		s.send(t, s.commit(t, 1))
	}
	s.send(t, s.commit(t, 2))
	if plans := s.plans(); len(plans) > 0 {
		t.Fatalf("%+v are compiled after 4 transactions", plans)
	}
	s.send(t, s.commit(t, 1))
	s.compiledOne(t)
	s.send(t, s.commit(t, 1))
	s.send(t, s.commit(t, 1), s.commit(t, 1))
	plan := s.plans()[0]
	if plan.Hits != 3 || plan.Left != 0 || plan.Shape != "HSET with 5 arguments" {
		t.Errorf("%+v, want three transactions", plan)
	}
	s.senders[1].CompileAfter(0)
	s.send(t, s.commit(t, 1))
	if again := s.plans()[0]; again.Hits != 3 {
		t.Errorf("%d transactions, although the sender does not compile", again.Hits)
	}
}

func TestOfTooManyPlansTheLeastUsedMakesRoom(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.senders[1].CompileAfter(1 << 40)
	for values := range maxStepArgs/2 - 1 {
		s.compile(t, values)
	}
	more := len(s.plans())
	for delay := 1; len(s.plans()) < maxCompiled; delay++ {
		c := s.commit(t, 0)
		c.Delay = time.Duration(delay) * time.Second
		s.senders[1].prepare(c)
		shape, _ := shapeOf(c)
		s.senders[1].compile(&compiled{shape: shape, plan: c.plan, sender: s.senders[1]})
	}
	for values := range more {
		if values != 7 {
			s.send(t, s.commit(t, values))
			s.send(t, s.commit(t, values))
		}
	}
	c := s.commit(t, 0)
	c.Input = Input{Ack: AckFence, Stream: "{1bz}s", Group: "g", Consumer: "c", Entry: "1-1"}
	for range 3 {
		s.senders[1].prepare(c)
	}
	shape, _ := shapeOf(c)
	s.senders[1].compile(&compiled{shape: shape, plan: c.plan, sender: s.senders[1]})
	plans := s.plans()
	assert.Equal(t, len(plans), maxCompiled, "compiled plans")
	var used int
	for _, plan := range plans {
		if plan.Hits == 2 {
			used++
		}
	}
	assert.Equal(t, used, more-1, "plans in use that are left")
}

func TestPlanThatFallsBackTooOftenIsNotCompiledAgain(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.senders[1].CompileAfter(1)
	s.send(t, s.commit(t, 1))
	s.compiledOne(t)
	known := s.commit(t, 1)
	s.send(t, known)
	for range 15 {
		twin := s.commit(t, 1)
		twin.Digest = known.Digest
		s.send(t, twin)
		if twin.Outcome.State != Duplicate {
			t.Fatalf("%+v, want a duplicate", twin.Outcome)
		}
	}
	if plans := s.plans(); len(plans) != 1 || plans[0].Left != 15 {
		t.Fatalf("%+v after 15 duplicates", plans)
	}
	twin := s.commit(t, 1)
	twin.Digest = known.Digest
	s.send(t, twin)
	for range 50 {
		s.send(t, s.commit(t, 1))
	}
	if plans := s.plans(); len(plans) != 0 {
		t.Errorf("%+v are compiled again", plans)
	}
}

func TestForgottenCompiledScriptsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.senders[1].CompileAfter(1 << 40)
	s.compile(t, 1)
	s.compile(t, 2)
	s.send(t, s.commit(t, 1))
	redistest.Must(t, s.clients[1].ScriptFlush(s.ctx).Err())
	s.send(t, s.commit(t, 1), s.commit(t, 2), s.commit(t, 2), s.commit(t, 3))
	for _, plan := range s.plans() {
		assert.Equal(t, plan.Hits, 2, "transactions of %+v", plan)
	}
}

func TestTransactionsThatAreTooLargeAreNotCompiled(t *testing.T) {
	t.Parallel()
	s := newService(t)
	many := func(n int, head string, args ...any) []Command {
		var all []Command
		for range n {
			all = append(all, Command{Head: head, Args: args})
		}
		return all
	}
	events := func(n int, event shard.Event) []shard.Event {
		var all []shard.Event
		for range n {
			all = append(all, event)
		}
		return all
	}
	for name, test := range map[string]struct {
		change   func(c *Commit)
		compiled bool
	}{
		"as it is":           {func(*Commit) {}, true},
		"most commands":      {func(c *Commit) { c.Commands = many(maxSteps, "k0", "set", "k", "v") }, true},
		"too many commands":  {func(c *Commit) { c.Commands = many(maxSteps+1, "k0", "set", "k", "v") }, false},
		"most arguments":     {func(c *Commit) { c.Commands = many(maxSteps, "h0", wide(maxStepArgs)...) }, true},
		"too many arguments": {func(c *Commit) { c.Commands = many(1, "h0", wide(maxStepArgs+2)...) }, false},
		"most events":        {func(c *Commit) { c.Events = events(maxEvents, shard.Event{}) }, true},
		"too many events":    {func(c *Commit) { c.Events = events(maxEvents+1, shard.Event{}) }, false},
		"an ordered event":   {func(c *Commit) { c.Events = events(1, shard.Event{Key: "k"}) }, false},
		"kept replies":       {func(c *Commit) { c.Keep = true }, false},
		"a large body":       {func(c *Commit) { c.staged = true }, false},
		"a guard":            {func(c *Commit) { c.Guards = []Guard{{}} }, false},
		"no id":              {func(c *Commit) { c.Input.Strict = true }, false},
		"another undo class": {func(c *Commit) { c.Commands = many(1, "s0", "SADD", "k", "m") }, false},
		"a name in bytes":    {func(c *Commit) { c.Commands = many(1, "k0", []byte("SET"), "k", "v") }, false},
		"two keys":           {func(c *Commit) { c.Commands = many(1, "-0", "MGET", "k", "l") }, false},
		"a key further on":   {func(c *Commit) { c.Commands = many(1, "-0", "OBJECT", "ENCODING", "k") }, false},
		"no command":         {func(c *Commit) { c.Commands = many(1, "-0", "NOSUCH", "k") }, false},
	} {
		c := s.commit(t, 1)
		test.change(c)
		shape, ok := shapeOf(c)
		assert.Equal(t, ok, test.compiled, "%s: compiled", name)
		if !ok {
			continue
		}
		s.senders[1].prepare(c)
		s.senders[1].compile(&compiled{shape: shape, plan: c.plan, sender: s.senders[1]})
		if c.plan.compiled.Load() == nil {
			t.Errorf("%s: the server does not take the script", name)
		}
	}
}

func wide(n int) []any {
	args := []any{"HSET", "k"}
	for len(args) < n {
		args = append(args, strings.Repeat("f", len(args)))
	}
	return args
}

// The queue limits the calls in a flight by these numbers.
func TestSealCountsTheArgumentsAndBytesThatAreSent(t *testing.T) {
	t.Parallel()
	s := newService(t)
	c := s.commit(t, 3)
	c.Input = Input{Ack: AckFused, Stream: "stream", Group: "g", Consumer: "c", Entry: "1-0"}
	c.Events = []shard.Event{{ID: "four", Body: []byte("seven c")}, {ID: "five5", Body: []byte("ninechars")}}
	c.Guards = []Guard{{Order: 'o', Args: []any{"GET", "guarded"}, Size: 100}}
	s.senders[0].prepare(c)
	_, argv, _ := c.Pack([]*eval.Call{&c.call})
	texts := 100 + len("GET") + len("guarded") + len("four") + len("seven c") + len("five5") + len("ninechars")
	for _, command := range c.Commands {
		for _, arg := range command.Args {
			text, ok := arg.(string)
			if !ok {
				t.Fatalf("%T", arg)
			}
			texts += len(text)
		}
	}
	if args, bytes := c.Seal(); args != len(argv) || bytes != texts {
		t.Errorf("%d arguments and %d bytes, want %d and %d", args, bytes, len(argv), texts)
	}
}

// TestNotesOfAPlanAddUp checks that notes at the same time count each use once.
func TestNotesOfAPlanAddUp(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sum shard.Plan
	s := &Sender{Note: func(p shard.Plan) {
		mu.Lock()
		defer mu.Unlock()
		if p.Hits < 0 || p.Left < 0 || p.Alone == p.Batch {
			t.Errorf("a note is %+v", p)
		}
		sum.Hits, sum.Left = sum.Hits+p.Hits, sum.Left+p.Left
	}}
	k := &compiled{plan: &plan{}, sender: s, alone: eval.NewScript("a", "return 1"), batch: eval.NewScript("b", "return 2")}
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 10_000 {
				k.plan.hits.Add(1)
				k.plan.left.Add(2)
				k.note()
			}
		})
	}
	users.Wait()
	s.Wait()
	assert.Equal(t, [2]int64{sum.Hits, sum.Left}, [2]int64{80_000, 160_000}, "the sum of all notes")
}
