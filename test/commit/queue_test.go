package commit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
)

// crowd is a number of concurrent callers. In each turn, a caller adds one to a counter of an aggregate.
type crowd struct {
	tr         *luatx.Transactor
	callers    int
	turns      int
	aggregates int

	mu      sync.Mutex
	replies map[string]map[int64]bool // by counter
}

func (c *crowd) aggregate(caller, turn int) string {
	return fmt.Sprint("a", (caller+turn)%c.aggregates)
}

// add commits one turn with an id of its own.
func (c *crowd) add(ctx context.Context, caller, turn int) (luatx.Result, error) {
	aggregate := c.aggregate(caller, turn)
	var count *redis.IntCmd
	result, err := c.tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
		n, err := tx.Key("n")
		count = tx.Pipeline().Incr(ctx, n)
		return errors.Join(err, luatx.Queued(count), tx.Emit(luatx.Event{Body: []byte("{}")}))
	}, luatx.WithID(fmt.Sprint(caller, "-", turn)))
	if err == nil && result.Outcome == luatx.Committed {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.replies[aggregate] == nil {
			c.replies[aggregate] = map[int64]bool{}
		}
		if c.replies[aggregate][count.Val()] {
			err = fmt.Errorf("the reply %d was given twice", count.Val())
		}
		c.replies[aggregate][count.Val()] = true
	}
	return result, err
}

// run fails the test unless every turn of every caller is acknowledged, and applied once.
func (c *crowd) run(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ctx := redistest.Soon(t)
	c.replies = map[string]map[int64]bool{}
	var callers sync.WaitGroup
	for caller := range c.callers {
		callers.Go(func() {
			for turn := range c.turns {
				if result, err := c.add(ctx, caller, turn); err != nil || result.Outcome == luatx.Duplicate {
					t.Errorf("caller %d, turn %d: %v, %v", caller, turn, result, err)
				}
			}
		})
	}
	callers.Wait()
	c.counted(t, client)
}

// counted fails the test unless every turn is applied once.
func (c *crowd) counted(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	want := map[string]int{}
	for caller := range c.callers {
		for turn := range c.turns {
			want[c.aggregate(caller, turn)]++
		}
	}
	for aggregate, n := range want {
		assert.Equal(t, client.Get(t.Context(), rig.Key(t, c.tr, aggregate, "n")).Val(), strconv.Itoa(n), "effects on %s", aggregate)
	}
}

func TestCallersThatShareAScriptGetTheirOwnEffectsAndReplies(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, aggregates := range []int{1, 40} {
			c := crowd{tr: rig.NewTransactor(t, client), callers: 64, turns: 10, aggregates: aggregates}
			c.run(t, client)
		}
	})
}

func TestCrowdOnOneSlotSharesScripts(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	c := crowd{tr: rig.NewTransactor(t, client), callers: 64, turns: 10, aggregates: 1}
	c.run(t, client)
	if n := rig.Executed(t, client); n > 320 {
		t.Errorf("%d scripts for 640 transactions", n)
	}
}

func TestCrowdCommitsOnAServerThatKeepsForgettingItsScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	client, admin := server.Client(t), server.Admin(t)
	c := crowd{tr: rig.NewTransactor(t, client), callers: 32, turns: 20, aggregates: 8}
	ctx, cancel := context.WithCancel(t.Context())
	var flush sync.WaitGroup
	flush.Go(func() {
		for ticker := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-ticker.C {
			admin.ScriptFlush(t.Context())
		}
	})
	c.run(t, client)
	cancel()
	flush.Wait()
}

// TestRejectedScriptDoesNotAffectOtherTransactionsInIt has a transaction for which the server rejects the whole script.
func TestRejectedScriptDoesNotAffectOtherTransactionsInIt(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	admin := server.Admin(t)
	if !server.Binary().AtLeast(7, 0) {
		t.Skip("before 7.0 the server does not look at the keys of a script as a whole")
	}
	namespace := redistest.Namespace(t)
	redistest.Must(t, admin.Do(t.Context(), "acl", "setuser", "u", "on", ">p", "+@all", "~"+namespace+"*").Err())
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "u", "p" })
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		c.Namespace, c.Keyspace = namespace, luatx.OwnTags().WithPrefix(namespace)
	})
	c := crowd{tr: tr, callers: 40, turns: 10, aggregates: 1}
	ctx, cancel := context.WithCancel(t.Context())
	var intruders sync.WaitGroup
	var refusals atomic.Int64
	for range 4 {
		intruders.Go(func() {
			for ctx.Err() == nil {
				_, err := tr.Transact(t.Context(), "a0", func(tx *luatx.Tx) error {
					return tx.Pipeline().Set(ctx, "elsewhere:{"+tx.Tag()+"}", 1, 0).Err()
				})
				if _, ok := errors.AsType[*luatx.RefusedError](err); !ok || !strings.Contains(err.Error(), "NOPERM") {
					t.Error(err)
				}
				refusals.Add(1)
			}
		})
	}
	c.run(t, admin)
	cancel()
	intruders.Wait()
	if refusals.Load() == 0 {
		t.Error("nothing was refused")
	}
}

func TestCallersThatLeaveASharedFlightGetAnErrorAndOthersWait(t *testing.T) {
	t.Parallel()
	proxy, client, direct := rig.Proxied(t)
	c := crowd{tr: rig.NewTransactor(t, client), callers: 40, turns: 1, aggregates: 1, replies: map[string]map[int64]bool{}}
	rig.Warm(t, c.tr)
	hold := respproxy.NewHold()
	remove := proxy.Next(math.MaxInt, respproxy.Command("EVALSHA"), respproxy.HoldBy(hold))
	ctx := redistest.Soon(t)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var callers sync.WaitGroup
	var left atomic.Int64
	for caller := range c.callers {
		callers.Go(func() {
			if caller%2 == 0 {
				assert.NoError(t, assert.ErrOf(c.add(ctx, caller, 0)), "a patient caller")
				return
			}
			defer left.Add(1)
			assert.Is(t, assert.ErrOf(c.add(short, caller, 0)), context.DeadlineExceeded, "an impatient caller")
		})
	}
	redistest.Eventually(t, "the impatient to leave", func() bool { return left.Load() == 20 })
	remove()
	hold.Release()
	callers.Wait()
	for caller := 1; caller < c.callers; caller += 2 { // they retry
		rig.NoError(t, assert.ErrOf(c.add(ctx, caller, 0)))
	}
	c.counted(t, direct)
}

func TestMessagesOfOneScriptAreNackedOnlyIfNoCopyCanCommit(t *testing.T) {
	t.Parallel()
	proxy, client, direct := rig.Proxied(t)
	ctx := redistest.Soon(t)
	warm := rig.NewTransactor(t, direct)
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) {
		*c = warm.Config()
		c.CommitTimeout = 500 * time.Millisecond
	})
	n := rig.Key(t, tr, "a", "n")
	rig.Warm(t, warm)
	hold, commit := respproxy.NewHold(), respproxy.Containing(rig.ScriptSHA(t, tr, "commit"))
	remove := proxy.Next(math.MaxInt, commit, respproxy.HoldBy(hold))
	r := rig.NewCounter(t, tr, client, n)
	const messages = 20
	deliver := func(fails bool) {
		var all sync.WaitGroup
		for i := range messages {
			all.Go(func() {
				msg := rig.Delivered(strconv.Itoa(i))
				if _, err := r.Process(ctx, msg); (err != nil) != fails || (msg.Err() != nil) != fails {
					t.Errorf("message %d: %v, nacked with %v", i, err, msg.Err())
				}
			})
		}
		all.Wait()
	}
	deliver(true)
	before := rig.Executed(t, direct)
	remove()
	hold.Release()
	redistest.Eventually(t, "the held requests to arrive", func() bool { return rig.Executed(t, direct) > before })
	assert.Equal(t, direct.Exists(ctx, n).Val(), 0, "effects of a commit after its message was nacked")
	deliver(false)
	assert.Equal(t, direct.Get(ctx, n).Val(), strconv.Itoa(messages), "effects after the redelivery")
}

// TestGatheredMessagesWaitUntilEachOutcomeIsKnown loses the reply of the only request that arrives. Each message is then looked up, the
// first one before the others.
func TestGatheredMessagesWaitUntilEachOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	_, direct := redistest.Mini(t)
	proxy := redistest.Proxy(t, direct.Options().Addr)
	client, ctx := redistest.Admin(t, proxy.Addr()), redistest.Soon(t) // miniredis has no other user
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.CommitTimeout = 300 * time.Millisecond })
	in := rig.NewInput(t, direct, rig.Key(t, tr, "a", "in"))
	n := rig.Key(t, tr, "a", "n")
	r := rig.NewCounter(t, tr, client, n)
	rig.Warm(t, tr)
	first := identity.ID{Aggregate: "a", Scope: tr.Config().Namespace + "/orders", Source: "/shop", ID: "0"}.Sum().Digest()
	commits, lookups := respproxy.Containing(rig.ScriptSHA(t, tr, "commit")), respproxy.Containing(rig.ScriptSHA(t, tr, "resolve"))
	var arrived atomic.Bool
	var ofFirst atomic.Int64
	proxy.On(func(cmd []string) respproxy.Action {
		switch {
		case commits(cmd) && !arrived.Swap(true):
			return respproxy.CutReply()
		case commits(cmd):
			return respproxy.CutRequest()
		case lookups(cmd) && slices.Contains(cmd, first):
			ofFirst.Add(1)
		case lookups(cmd):
			return respproxy.Delay(100 * time.Millisecond)
		}
		return respproxy.Pass()
	})
	const messages = 3
	var handlers sync.WaitGroup
	g := link.Of(tr).Gather(ctx, messages, 0, nil)
	for i := range messages {
		msg := in.Deliver("c", rig.Order(strconv.Itoa(i)))
		handlers.Go(func() {
			defer g.Leave()
			if _, err := r.Process(g.Context(ctx), msg); err != nil || msg.Err() != nil {
				t.Errorf("message %s: %v, nacked with %v", msg.ID(), err, msg.Err())
			}
		})
	}
	handlers.Wait()
	assert.Equal(t, direct.Get(ctx, n).Val(), strconv.Itoa(messages), "effects")
	if ofFirst.Load() == 0 {
		t.Error("the lookup of the first message was not seen")
	}
}

// TestMigratingSlotDoesNotDelayOthersOnItsNode also checks that its callers commit when it has moved.
func TestMigratingSlotDoesNotDelayOthersOnItsNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
	moving := crowd{tr: tr, callers: 100, turns: 1, aggregates: 1, replies: map[string]map[int64]bool{}}
	source, target := rig.Masters(t, cluster, slot.OfTag("a0"))
	neighbour := ""
	for i := 0; neighbour == ""; i++ {
		tag := fmt.Sprint("n", i)
		if node, err := cluster.NodeForSlot(ctx, slot.OfTag(tag)); err == nil && node == source {
			neighbour = tag
		}
	}
	add := func(aggregate string) error {
		return assert.ErrOf(tr.Transact(ctx, aggregate, rig.Emit))
	}
	redistest.Must(t, errors.Join(add("a0"), add(neighbour)))
	migration, err := cluster.BeginMigration(ctx, slot.OfTag("a0"), target)
	redistest.Must(t, err)
	var callers sync.WaitGroup
	for caller := range moving.callers {
		callers.Go(func() {
			rig.NoError(t, assert.ErrOf(moving.add(ctx, caller, 0)))
		})
	}
	begun := time.Now()
	for range 100 {
		redistest.Must(t, add(neighbour))
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the neighbour's commits took %v", took)
	}
	redistest.Must(t, migration.Finish(ctx))
	callers.Wait()
	moving.counted(t, client)
}
