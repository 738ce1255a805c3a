package eval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestFlightHasOnlyCallsWithTheSameWaitInTheirOrder(t *testing.T) {
	t.Parallel()
	durable := Durability{Replicas: 1}
	var l nodeQueue
	for _, wait := range []Durability{{}, {}, durable, durable, {}} {
		l.waiting = append(l.waiting, &Call{Wait: wait})
	}
	for _, want := range []struct {
		calls int
		wait  Durability
	}{{2, Durability{}}, {2, durable}, {1, Durability{}}, {0, Durability{}}} {
		batch := l.nextFlight()
		assert.Equal(t, len(batch), want.calls, "calls in the flight")
		for _, c := range batch {
			assert.Equal(t, c.Wait, want.wait, "what the flight waits for")
		}
	}
}

func TestCallThatIsAloneSharesNoFlightWithThoseBeforeAndBehindIt(t *testing.T) {
	t.Parallel()
	var l nodeQueue
	for _, alone := range []bool{false, true, false, false} {
		l.waiting = append(l.waiting, &Call{Alone: alone})
	}
	for _, want := range []int{1, 1, 2, 0} {
		assert.Equal(t, len(l.nextFlight()), want, "calls in the flight")
	}
}

// TestCallerThatLeavesTogetherWithItsReplyGetsTheReply runs often enough that both orders occur.
func TestCallerThatLeavesTogetherWithItsReplyGetsTheReply(t *testing.T) {
	t.Parallel()
	failed, left := errors.New("the reply"), 0
	ctx, leave := context.WithCancel(t.Context())
	leave()
	q := &queue{}
	for range 100 {
		c := &Call{queue: &nodeQueue{}, waiter: q.waiter(), in: &Call{err: failed, members: 3}}
		c.waiter.done <- struct{}{}
		q.await(ctx, c)
		if !errors.Is(c.Failure, failed) || c.Batch != 3 || c.Unanswered {
			left++
		}
	}
	assert.Equal(t, left, 0, "calls that lost their reply")
	late := &Call{queue: &nodeQueue{}, waiter: q.waiter(), in: &Call{}}
	q.await(ctx, late)
	assert.Is(t, late.Failure, context.Canceled, "a call without a reply")
	assert.Equal(t, late.Unanswered, true, "its flight goes on")
}

func TestFlightHoldsAsManyBytesAsItMay(t *testing.T) {
	t.Parallel()
	var l nodeQueue
	for _, size := range []int{maxBatchSize - 1, 1, maxBatchSize - 1, 2} {
		l.waiting = append(l.waiting, &Call{size: size})
	}
	for _, want := range []int{2, 1, 1, 0} {
		assert.Equal(t, len(l.nextFlight()), want, "calls in the flight")
	}
}

func TestArgumentsWeighAsMuchAsTheirCPUTime(t *testing.T) {
	t.Parallel()
	c := &Call{Load: single{argv: []any{"evalsha", "sha", 1, []byte("key")}}}
	c.seal()
	assert.Equal(t, c.size, 4*60+len("evalshashakey"), "the size of a call")
	c.Load = nil
	c.seal() // has been sealed
}

func TestLimitOfFlightsFollowsTheDurationOfRoundTrips(t *testing.T) {
	t.Parallel()
	for trip, want := range map[time.Duration]int{0: 2, 749 * time.Microsecond: 2, 750 * time.Microsecond: 3, time.Millisecond: 4, time.Second: 4} {
		assert.Equal(t, (&nodeQueue{trip: trip}).limit(), want, "flights while a round trip takes %v", trip)
	}
	l := &nodeQueue{trip: 800}
	for _, want := range []time.Duration{900, 987} {
		l.took(1600)
		assert.Equal(t, l.trip, want, "the average")
	}
	q := &queue{}
	l = &nodeQueue{trip: time.Millisecond, flights: 3}
	q.next(l, 0, 17*time.Millisecond)
	assert.Equal(t, l.trip, 3*time.Millisecond, "the average after a flight")
}

func TestFlightTakesAnEqualShareOfTheCallsWithoutSeparatingThoseOfAPush(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flying int
		pushes []uint64 // of the waiting calls
		want   []int    // calls in each flight
	}{
		"nothing flies":             {0, []uint64{1, 2, 3, 4, 5}, []int{3, 2}},
		"more wait than fly":        {2, []uint64{1, 2, 3, 4}, []int{3, 1}},
		"more fly than wait":        {6, []uint64{1, 2}, []int{2}},
		"a push":                    {0, []uint64{1, 1, 1, 1, 1, 1}, []int{6}},
		"a push within the share":   {0, []uint64{1, 1, 2, 3}, []int{2, 2}},
		"a push beyond the share":   {0, []uint64{1, 2, 2, 2, 3}, []int{4, 1}},
		"a push behind the share":   {0, []uint64{1, 2, 3, 3}, []int{2, 2}},
		"one call of two that wait": {0, []uint64{1, 2}, []int{1, 1}},
	} {
		l := &nodeQueue{flying: c.flying}
		for _, push := range c.pushes {
			l.waiting = append(l.waiting, &Call{push: push})
		}
		for _, want := range c.want {
			assert.Equal(t, len(l.nextFlight()), want, "%s: calls in the flight", name)
		}
		assert.Equal(t, l.flying, c.flying+len(c.pushes), "%s: calls in flight", name)
	}
}

func TestCallsOfAFlightAreCounted(t *testing.T) {
	t.Parallel()
	q, l := &queue{}, &nodeQueue{flights: 1, flying: 3}
	assert.Equal(t, q.enter(l), true, "a second flight")
	assert.Equal(t, l.flying, 4, "calls in flight")
	l.waiting = []*Call{{push: 1}, {push: 2}, {push: 3}}
	assert.Equal(t, len(q.next(l, 3, 0)), 2, "calls in the next flight")
	assert.Equal(t, l.flying, 3, "calls in flight after it took its share")
	assert.Equal(t, len(q.next(l, 1, 0))+len(q.next(l, 2, 0)), 1, "calls in the last flight")
	assert.Equal(t, l.flying, 1, "calls in flight at the end")
}

func TestQueuesOfAThousandNodesAreKept(t *testing.T) {
	t.Parallel()
	q := &queue{nodes: map[string]*nodeQueue{}}
	first := q.nodeQueue("0")
	for i := range 1000 {
		q.nodeQueue(fmt.Sprint(i))
	}
	if q.nodeQueue("0") != first {
		t.Error("the first of 1,000 queues was dropped")
	}
	q.nodeQueue("1000")
	assert.Equal(t, len(q.nodes), 1, "queues after one more")
}

func TestWaiterThatWasUsedBeforeWaitsForTheNextCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		wait := func(until, reply time.Duration) (time.Duration, error) {
			began := time.Now()
			c := &Call{waiter: q.waiter()}
			if until > 0 {
				c.Until = began.Add(until)
			}
			time.AfterFunc(reply, func() { c.waiter.done <- struct{}{} })
			err := q.wait(t.Context(), c)
			return time.Since(began), err
		}
		for range 20 {
			for _, until := range []time.Duration{0, time.Second, 0} { // 0: the caller waits for ever
				reply := cmp.Or(until/2, 3*time.Hour)
				took, err := wait(until, reply)
				assert.Equal(t, err, nil, "a call with a reply")
				assert.Equal(t, took, reply, "when the call has its reply")
			}
			took, err := wait(time.Minute, time.Hour)
			assert.Is(t, err, context.DeadlineExceeded, "a call without a reply in time")
			assert.Equal(t, took, time.Minute, "when it has no more time")
		}
	})
}

func TestNodeOfAKeyHasAnAddressOnlyInACluster(t *testing.T) {
	t.Parallel()
	r, n, _ := newNodes(t)
	n.node = redis.NewClient(&redis.Options{Addr: "127.0.0.1:7"})
	t.Cleanup(func() { _ = n.node.Close() })
	assert.Equal(t, r.Node(t.Context(), "k"), "127.0.0.1:7", "the node")
	n.err = net.ErrClosed
	assert.Equal(t, r.Node(t.Context(), "k"), "", "the node of a cluster that is not known")
	plain := New(n.node, "n", slog.New(slog.DiscardHandler))
	assert.Equal(t, plain.Node(t.Context(), "k"), "", "the node of a single server")
}

// gate is a hook that answers round trips when it is open, and cuts the connection of those with a poisoned key.
type gate struct {
	open chan struct{}

	mu  sync.Mutex
	now int // current round trips
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return g.trip(ctx, []redis.Cmder{cmd}) }
}

func (g *gate) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return g.trip(ctx, cmds) }
}

func (g *gate) trip(_ context.Context, cmds []redis.Cmder) error {
	g.count(1)
	defer g.count(-1)
	<-g.open
	poisoned := slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return slices.Contains(cmd.Args(), any("poison")) })
	for _, cmd := range cmds {
		if poisoned {
			cmd.SetErr(io.EOF)
		}
	}
	return cmds[0].Err()
}

func (g *gate) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
}

func newGate(t *testing.T) (g *gate, r *Runner, call func(key string) *Call) {
	t.Helper()
	g = &gate{open: make(chan struct{})}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(g)
	r = New(client, "n", slog.New(slog.DiscardHandler))
	script := r.Script("commit", "return 1")
	return g, r, func(key string) *Call {
		c := NewCall(script, []string{key}, nil)
		c.Load, c.Until = single{c.Script, c.Argv}, time.Now().Add(time.Second)
		return c
	}
}

func TestCallsThatShareNothingAreUnderWayTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, r, call := newGate(t)
		first, second := call("a"), call("b")
		first.Alone, second.Alone = true, true
		go r.Send(t.Context(), []*Call{first, second})
		synctest.Wait()
		assert.Equal(t, g.now, 2, "round trips under way")
		close(g.open)
	})
}

func TestSingleCallThatWaitsIsTakenAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, r, call := newGate(t)
		calls := make([]*Call, maxFlights+1)
		for i := range calls {
			calls[i] = call("k")
			calls[i].Until = time.Time{}
			go r.Send(t.Context(), []*Call{calls[i]})
		}
		synctest.Wait()
		assert.Equal(t, g.now, maxFlights, "round trips under way")
		close(g.open)
		synctest.Wait()
		for i, c := range calls {
			assert.NoError(t, c.Failure, "call %d", i)
			assert.Equal(t, c.Batch, 1, "calls in the script of call %d", i)
		}
		assert.Equal(t, r.queue.nodeQueue("").flights, 0, "flights at the end")
	})
}

func TestCallThatBreaksTheConnectionDoesNotKeepAnotherFromItsReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, r, call := newGate(t)
		close(g.open)
		good, poisoned := call("a"), call("poison")
		r.Send(t.Context(), []*Call{good, poisoned})
		assert.NoError(t, good.Failure, "the other call")
		assert.Equal(t, good.Tries, 2, "its round trips")
		assert.Is(t, poisoned.Failure, ErrUnknown, "the call that breaks the connection")
	})
}
