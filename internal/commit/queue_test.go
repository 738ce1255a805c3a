package commit

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

// The limits in package eval.
const (
	maxFlights   = 4
	maxBatchSize = 1 << 20
)

// call is a command that runs a script.
type call interface {
	redis.Cmder
	SetVal(reply any)
}

// answered is an error that a server sends.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

// counter is a hook that simulates a server for commits. It counts round trips, can delay them, and rejects commands with a
// poisoned key.
type counter struct {
	mu      sync.Mutex
	hold    chan struct{} // round trips wait until it is closed
	after   func()        // the rest of a round trip; nil if it takes no time
	now     int           // current round trips
	most    int           // maximum number of concurrent round trips
	trips   [][]int       // for each round trip, the number of transactions in each of its calls
	digests []string      // in the order of execution
	bodies  []string      // of their events
	inputs  []string      // stream, group and consumer of each execution
	others  []string      // commands that run no script
	fail    []error       // of the next round trips
	poison  string
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return c.trip(ctx, []redis.Cmder{cmd}) }
}

func (c *counter) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return c.trip(ctx, cmds) }
}

func (c *counter) trip(ctx context.Context, cmds []redis.Cmder) error {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	hold := c.hold
	c.mu.Unlock()
	var failure error
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			failure = ctx.Err()
		}
	}
	if c.after != nil {
		c.after()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
	var trip []int
	if len(c.fail) > 0 {
		failure, c.fail = c.fail[0], c.fail[1:]
	}
	for _, cmd := range cmds {
		if sent, ok := cmd.(call); ok && cmd.Name() == "evalsha" {
			n, err := c.execute(sent, failure)
			sent.SetErr(err)
			trip = append(trip, n)
		} else {
			c.others = append(c.others, cmd.Name())
		}
	}
	c.trips = append(c.trips, trip)
	return cmds[0].Err()
}

func (c *counter) execute(sent call, failure error) (int, error) {
	args := sent.Args()
	keys := args[2].(int)
	n := args[eval.FirstKey+keys].(int)
	if failure != nil {
		return n, failure
	}
	for _, key := range args[eval.FirstKey : eval.FirstKey+keys] {
		if key, ok := key.(*string); ok && c.poison != "" && *key == c.poison {
			return n, answered("NOPERM no access to a key")
		}
	}
	reply := []any{"1000"}
	for _, arg := range args {
		if event, ok := arg.(encoding.BinaryMarshaler); ok {
			body, err := event.MarshalBinary()
			if err != nil {
				return n, err
			}
			c.bodies = append(c.bodies, string(body))
		}
	}
	var input []string
	if group := *args[eval.FirstKey+keys+1].(*string); group != "" {
		input = append(input, *args[eval.FirstKey+shard.CommitKeys].(*string))
	}
	for _, arg := range args[eval.FirstKey+keys+1:][:headArgs-1] {
		if text, ok := arg.(*string); ok {
			arg = *text
		}
		input = append(input, arg.(string))
	}
	for _, arg := range args[eval.FirstKey+keys+headArgs:][:n] {
		c.inputs = append(c.inputs, strings.Join(input, " "))
		digest := *arg.(*string)
		c.digests = append(c.digests, digest)
		if len(c.digests)%2 == 0 {
			reply = append(reply, int64(3), "failed", int64(1), digest) // so that each caller recognizes its own
		} else {
			reply = append(reply, int64(2), "full", digest) // results differ in size
		}
	}
	sent.SetVal(reply)
	return n, nil
}

func newCounter(t *testing.T) (*set, *counter) {
	t.Helper()
	c := &counter{}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	client.AddHook(c)
	t.Cleanup(func() { _ = client.Close() })
	return newSet(client), c
}

// set sends commits, and runs the scripts of shards.
type set struct {
	*Sender
	*shard.Scripts

	runner *eval.Runner
}

func newSet(client redis.UniversalClient) *set {
	constants := shard.Constants{Namespace: "n", Identity: "i"}
	runner := eval.New(client, constants.Namespace, slog.New(slog.DiscardHandler))
	return &set{New(runner, constants, nil), shard.New(runner, constants), runner}
}

// sending returns a transaction of slot n with separate keys.
func sending(set *set, n int, digest string, keys ...string) *Commit {
	b := &Commit{Shard: set.Shard(n), Digest: digest, Token: "t", Keys: keys}
	for _, key := range keys {
		b.Commands = append(b.Commands, Command{"k02", []any{"GET", key}})
	}
	return b
}

// own fails the test unless the outcome belongs to the transaction.
func own(t *testing.T, b *Commit) {
	t.Helper()
	if b.Err != nil || b.Outcome.Text != b.Digest {
		t.Errorf("transaction %s was answered %+v, %v", b.Digest, b.Outcome, b.Err)
	}
}

func TestLoneCallerSendsAtOnceAndLaterCallersShareAScript(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set, server := newCounter(t)
		server.hold = make(chan struct{})
		server.after = func() { time.Sleep(time.Millisecond) } // so that the round trips overlap
		var callers sync.WaitGroup
		for i := range maxFlights + 100 {
			b := sending(set, i%2, fmt.Sprint(i), fmt.Sprint("key", i))
			callers.Go(func() { set.Send(t.Context(), time.Time{}, []*Commit{b}); own(t, b) })
			synctest.Wait() // one after the other
		}
		assert.Equal(t, server.now, maxFlights, "round trips under way")
		close(server.hold)
		callers.Wait()
		want := [][]int{{1}, {1}, {1}, {1}, {11, 11}, {13, 13}, {13, 13}, {13, 13}}
		if trips := sorted(server.trips); server.most != maxFlights || !slices.EqualFunc(trips, want, slices.Equal) {
			t.Errorf("the round trips carried %v, %d at a time", trips, server.most)
		}
		assert.Equal(t, len(server.digests), maxFlights+100, "executed transactions")
	})
}

func sorted(trips [][]int) [][]int {
	slices.SortFunc(trips, slices.Compare)
	return trips
}

func TestScriptHasCommitsOfAtMostOneInput(t *testing.T) {
	t.Parallel()
	set, server := newCounter(t)
	want := []string{"", "s g c", "", "s2 g c", "s g2 c", "s g c2", "s g c", "s2 g c", ""}
	batch := make([]*Commit, len(want))
	for i, input := range want {
		batch[i] = sending(set, 0, fmt.Sprint(i))
		if names := strings.Fields(input); len(names) > 0 {
			batch[i].Input = Input{Ack: AckFused, Stream: names[0], Group: names[1], Consumer: names[2], Entry: "1-1"}
		}
	}
	set.Send(t.Context(), time.Time{}, batch)
	for _, b := range batch {
		own(t, b)
	}
	if trips := [][]int{{5, 2, 1, 1}}; !slices.EqualFunc(server.trips, trips, slices.Equal) {
		t.Errorf("the round trips carried %v", server.trips)
	}
	for i, digest := range server.digests {
		n, _ := strconv.Atoi(digest)
		if want[n] != "" && server.inputs[i] != want[n] {
			t.Errorf("transaction %d, of input %q, was executed with %q", n, want[n], server.inputs[i])
		}
	}
}

func TestFlightsTakeCallersInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set, server := newCounter(t)
		server.hold = make(chan struct{})
		server.after = func() { time.Sleep(time.Millisecond) } // so that the round trips overlap
		var callers sync.WaitGroup
		for i := range maxFlights + 50 {
			b := sending(set, 0, fmt.Sprintf("%03d", i))
			callers.Go(func() { set.Send(t.Context(), time.Time{}, []*Commit{b}) })
			synctest.Wait()
		}
		close(server.hold)
		callers.Wait()
		var flights [][]string
		left := server.digests
		for _, scripts := range server.trips {
			flights = append(flights, left[:scripts[0]])
			left = left[scripts[0]:]
		}
		slices.SortFunc(flights, slices.Compare) // a flight may overtake another
		if got := slices.Concat(flights...); !slices.IsSorted(got) {
			t.Errorf("executed in the order %v", got)
		}
		assert.Equal(t, len(flights), 2*maxFlights, "flights, of which the callers that waited share half")
	})
}

func TestFlightKeepsToMaxBatchSizeAndALargerTransactionFliesAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set, server := newCounter(t)
		batch := make([]*Commit, 6)
		for i, size := range []int{maxBatchSize / 3, maxBatchSize / 3, maxBatchSize / 3, 2 * maxBatchSize, 1, 1} {
			batch[i] = sending(set, 0, fmt.Sprint(i))
			batch[i].Events = []shard.Event{{ID: "e", Body: make([]byte, size)}}
		}
		set.Send(t.Context(), time.Time{}, batch)
		for _, b := range batch {
			own(t, b)
		}
		assert.Equal(t, len(server.others), 4, "commands that store bodies")
		if want := [][]int{{1}, {1}, {2}, {2}}; !slices.EqualFunc(sorted(server.trips), want, slices.Equal) {
			t.Errorf("the round trips carried %v", server.trips)
		}
	})
}

// TestCallerThatLeavesLearnsWhetherItsRequestWasSent tests that a caller returns when its context or its own deadline ends. If
// its request was not sent, the error states that. If the request is in flight, the error states that it may have been
// executed. The flight continues for the other callers and does not access the caller's memory.
func TestCallerThatLeavesLearnsWhetherItsRequestWasSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after func(context.Context, time.Duration) (context.Context, time.Time)
		why   error
	}{
		"cancelled": {func(ctx context.Context, d time.Duration) (context.Context, time.Time) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(d, cancel)
			return ctx, time.Now().Add(time.Hour)
		}, context.Canceled},
		"deadline": {func(ctx context.Context, d time.Duration) (context.Context, time.Time) {
			ctx, cancel := context.WithTimeout(ctx, d)
			time.AfterFunc(2*d, cancel)
			return ctx, time.Time{}
		}, context.DeadlineExceeded},
		"patience": {func(ctx context.Context, d time.Duration) (context.Context, time.Time) {
			return ctx, time.Now().Add(d)
		}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			departing(t, c.after, c.why)
		})
	}
}

func departing(t *testing.T, after func(context.Context, time.Duration) (context.Context, time.Time), why error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		set, server := newCounter(t)
		server.hold = make(chan struct{})
		first := server.hold
		var callers sync.WaitGroup
		for i := range maxFlights {
			b := sending(set, 0, fmt.Sprint(i))
			callers.Go(func() { set.Send(t.Context(), time.Time{}, []*Commit{b}); own(t, b) })
		}
		synctest.Wait()
		start := func(ctx context.Context, until time.Time, b *Commit) {
			callers.Go(func() { set.Send(ctx, until, []*Commit{b}) })
			synctest.Wait()
		}
		ctx, until := after(t.Context(), time.Second)
		queued, flying, stays := sending(set, 0, "queued"), sending(set, 0, "flying"), sending(set, 0, "stays")
		body := []byte("body")
		flying.Events = []shard.Event{{ID: "e", Body: body}}

		start(ctx, until, queued)
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(queued.Err, why) || errors.Is(queued.Err, eval.ErrUnknown) || queued.Unanswered {
			t.Errorf("left the queue: %v, %t", queued.Err, queued.Unanswered)
		}

		ctx, until = after(t.Context(), time.Second)
		start(ctx, until, flying)
		start(t.Context(), time.Now().Add(time.Hour), stays)
		server.mu.Lock()
		server.hold = make(chan struct{}) // for the flight with both calls
		server.mu.Unlock()
		close(first)
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(flying.Err, eval.ErrUnknown) || !errors.Is(flying.Err, why) || !flying.Unanswered {
			t.Errorf("left in flight: %v, %t", flying.Err, flying.Unanswered)
		}
		body[0] = 'X'
		close(server.hold)
		callers.Wait()
		own(t, stays)
		if stays.Unanswered {
			t.Error("the flight ended with one of its callers")
		}
		if slices.Contains(server.digests, "queued") || !slices.Contains(server.digests, "flying") {
			t.Errorf("executed %v", server.digests)
		}
		if !slices.Equal(server.bodies, []string{"body"}) {
			t.Errorf("the flight carried what its caller had made of the body since: %q", server.bodies)
		}
	})
}

// A caller that has run out of time must not read fields of its call that a flight may still write. Only the race
// detector finds such a read. It does not find it under synctest, whose clock synchronizes goroutines.
func TestCallerDoesNotReadACallThatItLeftInFlight(t *testing.T) {
	t.Parallel()
	set, server := newCounter(t)
	first, second := make(chan struct{}), make(chan struct{})
	server.hold = first
	var callers sync.WaitGroup
	for i := range maxFlights {
		callers.Go(func() { set.Send(t.Context(), time.Time{}, []*Commit{sending(set, 0, fmt.Sprint(i))}) })
	}
	lonely := sending(set, 0, "lonely")
	redistest.Eventually(t, "the flights are under way", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return server.now == maxFlights
	})
	server.mu.Lock()
	server.hold = second
	server.mu.Unlock()
	callers.Go(func() { set.Send(t.Context(), time.Time{}, []*Commit{sending(set, 1, "patient")}) }) // so that the flight lasts longer than the other caller
	callers.Go(func() {
		defer close(second)
		set.Send(t.Context(), time.Now().Add(100*time.Millisecond), []*Commit{lonely})
	})
	close(first)
	callers.Wait()
	assert.Is(t, lonely.Err, context.DeadlineExceeded, "left in flight")
}

// TestRedirectionInAPipelineIsNotAReply tests that a redirection that a pipeline returns is not a reply, because the node that
// it leads to may have executed the script. For a single request, it is final.
func TestRedirectionInAPipelineIsNotAReply(t *testing.T) {
	t.Parallel()
	for _, requests := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			set, server := newCounter(t)
			server.fail = []error{answered("MOVED 1 127.0.0.1:1")}
			batch := make([]*Commit, requests)
			for i := range batch {
				batch[i] = sending(set, i, fmt.Sprint(i))
			}
			set.Send(t.Context(), time.Time{}, batch)
			for _, b := range batch {
				own(t, b)
				assert.Equal(t, b.Unanswered, requests > 1, "%d requests: unanswered", requests)
			}
		})
	}
}

// TestFailingTransactionDoesNotAffectOthersInItsRoundTrip tests that a transaction that breaks the connection, or whose whole
// script the server rejects, does not affect others in the same round trip.
func TestFailingTransactionDoesNotAffectOthersInItsRoundTrip(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"refused": nil, "connection cut": io.EOF, "half forgotten": answered("NOSCRIPT")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				set, server := newCounter(t)
				server.poison = "poison"
				if failure != nil {
					server.fail = []error{failure}
				}
				batch := make([]*Commit, 9)
				for i := range batch {
					batch[i] = sending(set, i%3, fmt.Sprint(i), "k")
				}
				batch[4] = sending(set, 1, "4", "poison")
				set.Send(t.Context(), time.Time{}, batch)
				for i, b := range batch {
					if i != 4 {
						own(t, b)
					} else if refused, ok := errors.AsType[*eval.ServerError](b.Err); !ok || !strings.Contains(refused.Error(), "NOPERM") {
						t.Errorf("the poisoned one was answered %+v, %v", b.Outcome, b.Err)
					}
					assert.Equal(t, b.Unanswered, errors.Is(failure, io.EOF), "transaction %d: unanswered", i)
				}
			})
		})
	}
}

func TestTailOfABatchIsSentOnceInItsPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set, server := newCounter(t)
		server.fail = []error{answered("TRYAGAIN")}
		batch := []*Commit{sending(set, 0, "a"), sending(set, 0, "b")}
		tail := redis.NewStringCmd(t.Context(), "get", "k")
		set.Send(t.Context(), time.Time{}, batch, tail)
		own(t, batch[0])
		own(t, batch[1])
		if want := [][]int{{2}, {2}}; !slices.EqualFunc(server.trips, want, slices.Equal) || !slices.Equal(server.others, []string{"get"}) {
			t.Errorf("the round trips carried %v, and %q", server.trips, server.others)
		}
	})
}

// slice is an argument that encodes itself without a copy.
type slice []byte

func (s slice) MarshalBinary() ([]byte, error) { return s, nil }

func TestSealedArgumentsDoNotChangeWithTheCallersMemory(t *testing.T) {
	t.Parallel()
	text, number, bytes, when, long, float, yes, ip := "text", 7, []byte("bytes"), time.Unix(1, 0), int64(8), 2.5, true, net.IP("1234")
	args := []any{"s", 1, int64(2), bytes, &text, &number, (*string)(nil), when, &when, 1.5, time.Second, &long, &float, &yes, ip, slice(bytes)}
	want := []any{"s", 1, int64(2), []byte("bytes"), "text", 7, (*string)(nil), when, when, 1.5, time.Second, int64(8), 2.5, true, []byte("1234"), []byte("bytes")}
	for i, arg := range args {
		args[i] = frozen(arg)
	}
	text, number, bytes[0], when, long, float, yes, ip[0] = "changed", 8, 'X', time.Unix(2, 0), 9, 3.5, false, 'X'
	for i, arg := range args {
		assert.Equal(t, fmt.Sprintf("%T %v", arg, arg), fmt.Sprintf("%T %v", want[i], want[i]), "argument %d", i)
	}
}
