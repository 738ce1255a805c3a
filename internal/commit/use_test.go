package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/assert"
)

// inUse returns a compiled plan that was sent that often.
func inUse(s *Sender, seen int64) *compiled {
	k := &compiled{plan: &plan{}, sender: s, alone: eval.NewScript("a", "return 1"), batch: eval.NewScript("b", "return 2")}
	k.plan.seen.Store(seen)
	k.plan.settled.Store(true)
	return k
}

func TestPlanThatMakesRoomBeginsAnewAndOlderUsesWeighLess(t *testing.T) {
	t.Parallel()
	s, all := &Sender{}, []*compiled(nil)
	for i := range 64 {
		k := inUse(s, int64(1000+(i+32)%64)) // the 33rd is the least used
		k.plan.hits.Store(8)
		k.plan.left.Store(4)
		k.note()
		s.plans.add(k)
		all = append(all, k)
	}
	assert.Equal(t, len(s.Plans()), 64, "plans")
	made := inUse(s, 500)
	s.plans.add(made)
	assert.Equal(t, len(s.Plans()), 64, "plans after one more")
	for i, k := range append(all, made) {
		p := k.plan
		got := [5]int64{p.seen.Load(), p.hits.Load(), p.left.Load(), p.noted[0].Load(), p.noted[1].Load()}
		want := [5]int64{int64(1000+(i+32)%64) / 2, 8, 4, 8, 4}
		switch i {
		case 32:
			want = [5]int64{}
		case 64:
			want = [5]int64{500, 0, 0, 0, 0}
		}
		assert.Equal(t, got, want, "the counts of plan %d", i)
		assert.Equal(t, p.settled.Load(), i != 32, "plan %d is settled", i)
		assert.Equal(t, p.compiled.Load() != nil, i != 32, "plan %d is compiled", i)
	}
}

func TestPlanIsLeftIfAFourthOfItsTransactionsLeaveIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hits, left int64
		dropped    bool
	}{{0, 15, false}, {0, 16, true}, {64, 16, true}, {67, 16, true}, {68, 16, false}, {68, 17, true}, {1000, 249, false}} {
		var notes []shard.Plan
		s := &Sender{Note: func(p shard.Plan) { notes = append(notes, p) }}
		k := inUse(s, 500)
		k.plan.hits.Store(c.hits)
		s.plans.add(k)
		k.plan.left.Store(c.left - 1)
		s.plans.leave(k.plan)
		s.Wait()
		assert.Equal(t, k.plan.compiled.Load() == nil, c.dropped, "dropped after %+v", c)
		if !c.dropped {
			assert.Equal(t, len(notes), 0, "notes after %+v", c)
			continue
		}
		assert.Equal(t, k.plan.seen.Load(), -10_000, "uses")
		if len(notes) != 1 || notes[0].Hits != c.hits || notes[0].Left != c.left {
			t.Errorf("notes after %+v: %+v", c, notes)
		}
		s.plans.leave(k.plan) // by a transaction that was sent before
	}
}

func TestUseOfAPlanIsNotedNowAndThen(t *testing.T) {
	t.Parallel()
	var notes []int64
	s := &Sender{Note: func(p shard.Plan) { notes = append(notes, p.Hits) }}
	k := inUse(s, 1)
	for range 3 * 4096 {
		k.hit()
		s.Wait()
	}
	assert.Equal(t, fmt.Sprint(notes), "[4096 4096 4096]", "the hits of the notes")
}

func TestPlansAreListedByTheirUse(t *testing.T) {
	t.Parallel()
	s := &Sender{}
	for _, hits := range []int64{2, 9, 1, 5} {
		k := inUse(s, 1)
		k.plan.hits.Store(hits)
		s.plans.add(k)
	}
	var got []int64
	for _, p := range s.Plans() {
		got = append(got, p.Hits)
	}
	assert.Equal(t, fmt.Sprint(got), "[9 5 2 1]", "the hits")
}

func TestWaitLastsUntilPlansAreNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &Sender{Note: func(shard.Plan) { time.Sleep(time.Second) }}
		inUse(s, 1).note()
		s.Wait()
		assert.Equal(t, time.Since(began), time.Second, "the time of Wait")
	})
}

// loading is a hook that answers SCRIPT LOAD.
type loading struct {
	replying

	err error
	mu  sync.Mutex
	ctx []context.Context
}

func (l *loading) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, _ redis.Cmder) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ctx = append(l.ctx, ctx)
		return l.err
	}
}

func TestPlanThatCannotBeLoadedIsTriedAgainMuchLater(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{nil, answered("NOPERM no")} {
		hook, notes := &loading{err: failure}, 0
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
		client.AddHook(hook)
		set := newSet(client)
		set.Note = func(shard.Plan) { notes++ }
		set.Sender.CompileAfter(1)
		c := sending(set, 0, "a", "k")
		set.prepare(c)
		set.Wait()
		loaded := failure == nil
		assert.Equal(t, len(set.Sender.Plans()) == 1, loaded, "compiled after %v", failure)
		assert.Equal(t, notes == 1, loaded, "noted after %v", failure)
		assert.Equal(t, c.plan.settled.Load(), loaded, "settled after %v", failure)
		assert.Equal(t, c.plan.seen.Load() == -10_000, !loaded, "waits after %v", failure)
		for _, ctx := range hook.ctx {
			assert.Is(t, ctx.Err(), context.Canceled, "the context of the load")
		}
		assert.Must(t, client.Close())
	}
}

func TestPlanTellsTheScriptWhatItsTransactionsHave(t *testing.T) {
	t.Parallel()
	var known plans
	of := func(c *Commit, strings bool) string { return known.of(c, strings).text.(string) }
	assert.Equal(t, of(&Commit{args: 0x54321}, false)[:3], "\x05\x43\x21", "the number of arguments")
	for input, want := range map[Input]byte{
		{}: 0, {Strict: true}: 0, {Ack: AckFence}: 1, {Ack: AckFused}: 3, {Ack: AckFence, Strict: true}: 5, {Ack: AckFused, Strict: true}: 7,
	} {
		assert.Equal(t, of(&Commit{Input: input}, false)[3], want, "the input of %+v", input)
	}
	const flags = 12
	for want, c := range map[byte]*Commit{0: {}, 1: {Keep: true}, 2: {Events: []shard.Event{{Key: "k"}}}, 8: {Position: &Position{}}} {
		assert.Equal(t, of(c, false)[flags], want, "the flags of %+v", c)
		assert.Equal(t, of(c, true)[flags], want|4, "the flags of %+v on a server that restores only strings", c)
	}
	plan := func(args ...any) *plan { return known.of(&Commit{Commands: []Command{{"-0", args}}}, false) }
	if first := plan("TIME"); first == plan("DBSIZE") || first != plan("TIME") {
		t.Error("commands without arguments have the same plan, or different ones have one")
	}
	plan() // has no name
}

func TestTransactionThatCallsAProcedureHasTheKeysOfEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commit         *Commit
		calls, special bool
	}{
		"nothing":          {&Commit{}, false, false},
		"a command":        {&Commit{Commands: []Command{{Head: "k0"}}}, false, false},
		"a procedure":      {&Commit{Commands: []Command{{Head: "k0"}, {Head: "p0"}}}, true, true},
		"a plain event":    {&Commit{Events: []shard.Event{{ID: "e"}}}, false, false},
		"an ordered event": {&Commit{Events: []shard.Event{{ID: "e"}, {ID: "f", Key: "k"}}}, false, true},
	} {
		assert.Equal(t, c.commit.Calls(), c.calls, "%s: calls", name)
		assert.Equal(t, c.commit.special(), c.special, "%s: special", name)
	}
}

func TestImpatientCallerOfADurableCommitIsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			durability eval.Durability
			left       time.Duration
			alone      bool
		}{
			{eval.Durability{Timeout: time.Second}, time.Second, false},
			{eval.Durability{Replicas: 1, Timeout: time.Second}, time.Second, true},
			{eval.Durability{Replicas: 1, Timeout: time.Second}, time.Minute, false},
		} {
			set, server := newCounter(t)
			set.durability = c.durability
			server.hold = make(chan struct{})
			b := sending(set, 0, "a")
			busy := make([]*Commit, maxFlights)
			var callers sync.WaitGroup
			for i := range busy {
				busy[i] = sending(set, 0, fmt.Sprint(i))
				callers.Go(func() { set.Send(t.Context(), time.Time{}, busy[i:i+1]) })
			}
			synctest.Wait()
			callers.Go(func() { set.Send(t.Context(), time.Now().Add(c.left), []*Commit{b}) })
			synctest.Wait()
			assert.Equal(t, server.now == maxFlights+1, c.alone, "%+v with %v left: under way at once", c.durability, c.left)
			close(server.hold)
			callers.Wait()
		}
	})
}

func TestRequestsReturnTheErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(&loading{err: answered("NOPERM no")})
	set := newSet(client)
	ctx, home := t.Context(), set.Shard(0)
	_, _, probed := set.Probe(ctx, home, func(error) {})
	_, _, _, resolved := set.Resolve(ctx, home, "d", nil, "t", time.Time{})
	for name, err := range map[string]error{
		"Probe":   probed,
		"Resolve": resolved,
		"Read":    assert.ErrOf(set.Read(ctx, home, nil, nil, 1)),
		"Enqueue": assert.ErrOf(set.Enqueue(ctx, home, nil)),
	} {
		if !errors.Is(err, answered("NOPERM no")) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestReplyOfAnEnqueueIsDecoded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply []any
		want  Entrance
	}{
		{[]any{"1", "enqueued", int64(3)}, Entrance{State: Committed, New: 3}},
		{[]any{"1", "enqueued", int64(3), int64(0)}, Entrance{State: Committed, New: 3}},
		{[]any{"1", "enqueued", int64(3), int64(1)}, Entrance{State: Committed, New: 3, Woken: true}},
		{[]any{"1", "full", "bytes"}, Entrance{State: Full, Text: "bytes"}},
		{[]any{"1", "other", int64(2)}, Entrance{State: Failed, Index: 2, Text: "the event exists with another body"}},
		{[]any{"1", "identity", "another"}, Entrance{State: Identity, Text: "another"}},
	} {
		set := newReplying(t, c.reply)
		got, err := set.Enqueue(t.Context(), set.Shard(0), nil)
		assert.NoError(t, err, "%v", c.reply)
		assert.Equal(t, got, c.want, "the result of %v", c.reply)
	}
	for _, reply := range []any{nil, "text", []any{"1"}, []any{"1", "full"}, []any{"x", "full", "bytes"}, []any{"1", "nosuch", "x"}} {
		set := newReplying(t, reply)
		if got, err := set.Enqueue(t.Context(), set.Shard(0), nil); err == nil {
			t.Errorf("%v: %+v", reply, got)
		}
	}
}

func TestReplyOfAResolveIsDecoded(t *testing.T) {
	t.Parallel()
	set := newReplying(t, []any{"7", "early", "9"})
	state, text, now, err := set.Resolve(t.Context(), set.Shard(0), "d", nil, "t", time.Time{})
	if state != Early || text != "9" || now.UnixMilli() != 7 || err != nil {
		t.Errorf("%s, %s, %v, %v", state, text, now, err)
	}
	for _, reply := range []any{nil, "text", []any{"7", "early"}, []any{"7", "early", "9", "x"}, []any{"x", "early", "9"}} {
		set := newReplying(t, reply)
		if state, _, _, err := set.Resolve(t.Context(), set.Shard(0), "d", nil, "t", time.Time{}); err == nil || state != "" {
			t.Errorf("%v: %s, %v", reply, state, err)
		}
	}
}

func TestReplyOfReadsIsDecoded(t *testing.T) {
	t.Parallel()
	set := newReplying(t, []any{[]any{int64(1), "text", "d1", int64(4)}, []any{int64(0), "ERR x", "d2", int64(5)}, []any{int64(1), int64(0), "d3", int64(1)}})
	got, err := set.Read(t.Context(), set.Shard(0), nil, slices.Repeat([]Guard{{Args: []any{"GET", "k"}}}, 3), 100)
	assert.Must(t, err)
	assert.Equal(t, fmt.Sprint(got), "[{text d1 4} {ERR x d2 5} {0 d3 1}]", "the reads")
	if _, failed := got[1].Reply.(error); !failed {
		t.Errorf("the reply of the second read is a %T", got[1].Reply)
	}
}

func TestLineOfAScriptIsLocatedInItsProcedure(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	t.Cleanup(func() { _ = client.Close() })
	s := New(newSet(client).runner, shard.Constants{Namespace: "n", Identity: "i"}, []Procedure{
		{Name: "first", Keys: []string{"a", "b"}, Args: []string{"x"}, Source: "local one\nreturn one"},
		{Name: "second", Source: "error('no')"},
	})
	lines, place := strings.Split(s.commit.Text, "\n"), func(line int) string { return s.Locate(fmt.Sprintf("user_script:%d: no", line)) }
	for text, want := range map[string]string{"local one": "first:1", "return one": "first:2", "error('no')": "second:1"} {
		line := slices.Index(lines, text) + 1
		assert.Equal(t, place(line), "procedure "+want+": no", "line %d", line)
	}
	own := slices.Index(lines, "local time = redis.call('TIME')") + 1
	for _, line := range []int{0, 1, own, own + 1, len(lines) + 1} {
		assert.Equal(t, place(line), fmt.Sprintf("user_script:%d: no", line), "line %d", line)
	}
	const huge = "user_script:99999999999999999999: no"
	assert.Equal(t, s.Locate(huge), huge, "a line that is no number")
}
