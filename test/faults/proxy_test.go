package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
)

// seed draws a seed and logs it; LUATX_SEED names one.
func seed(t testing.TB) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(os.Getenv("LUATX_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	t.Logf("LUATX_SEED=%d", n)
	return n
}

// TestChaos commits through a network that loses, repeats, delays and cuts requests and replies at random. Afterwards
// every effect is there once, and every caller was told the truth. Some callers give up early: they alone may be told
// that the outcome is unknown.
func TestChaos(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.Proxy(t, server.Addr())
	through := redistest.Client(t, proxy.Addr(), rig.ShortReads)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	l := newLoad(t, rig.NewTransactor(t, through), "a", "b", "c", "d", "e")
	chaos := respproxy.Chaos{
		Seed:        seed(t),
		DropRequest: .04, DropReply: .05, Cut: .06, Duplicate: .06, Delay: .08, Silent: .01, MaxDelay: 30 * time.Millisecond,
	}
	stop := proxy.Chaos(chaos)
	const workers = 20
	each := 50
	if verifying() {
		each = 1000
	}
	var running sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(chaos.Seed, uint64(w)))
		running.Go(func() {
			for i := range each {
				aggregate, id := l.aggregates[i%len(l.aggregates)], fmt.Sprintf("%d-%d", w, i)
				limit, end := ctx, context.CancelFunc(func() {})
				switch i % 4 {
				case 0: // without an id
					id = ""
				case 1: // shared with another worker, which uses it at the same time
					id = fmt.Sprintf("shared-%d-%d", w/2, i)
				case 2: // gives up early
					limit, end = context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(10*time.Millisecond))))
				}
				l.call(limit, fmt.Sprintf("call-%d-%d", w, i), aggregate, id)
				end()
			}
		})
	}
	running.Wait()
	stop()
	_ = through.Close() // and what is still under way arrives
	redistest.Eventually(t, "the network to be empty", func() bool { return proxy.Connections() == 0 })

	n := l.audit(ctx, server.Client(t), func(*call) bool { return false })
	t.Log(n)
	for _, c := range l.calls {
		if c.err != nil && !c.overdue {
			t.Errorf("%s: an error in time: %v", c.name, c.err)
		}
	}
	if n.replayed == 0 || n.duplicate == 0 || n.failed+n.unknown == 0 {
		t.Error("the network was too kind for this test")
	}
}

// TestStackUnderChaos hands messages to the scripted stack through such a network, again and again until each is acked.
// A message that was nacked had not been applied; in the end each is applied once, its event too, and none is pending.
func TestStackUnderChaos(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	past, proxy := server.Client(t), redistest.Proxy(t, server.Addr())
	through := redistest.Client(t, proxy.Addr(), rig.ShortReads)
	ctx := redistest.Soon(t)
	tr := rig.NewTransactor(t, through, func(c *luatx.Config) { c.CommitTimeout = 100 * time.Millisecond })
	in := rig.NewInput(t, past, rig.Key(t, tr, "a", "orders"))
	effects := rig.Key(t, tr, "a", "effects")
	r := rig.NewRouter(t, message.PipeConfig{}, rig.Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
		msg, _ := message.MessageFromContext(ctx)
		sold := message.New("sold", message.Attributes{"type": "sold", "source": "/shop"}, nil)
		return []*message.Message{sold}, luatx.Queued(luatx.CmdableFromContext(ctx, through).HIncrBy(ctx, effects, msg.ID(), 1))
	})
	const workers, each = 10, 20
	var messages [workers][]*message.Message
	for w := range workers {
		for i := range each {
			messages[w] = append(messages[w], in.Deliver("c", rig.Order(fmt.Sprintf("%d-%d", w, i))))
		}
	}
	stop := proxy.Chaos(respproxy.Chaos{Seed: seed(t), DropRequest: .05, DropReply: .1, Cut: .05, Duplicate: .05, Delay: .05, Silent: .04})
	var nacked, unknown atomic.Int64
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for _, msg := range messages[w] {
				for _, err := r.Process(ctx, msg); err != nil; _, err = r.Process(ctx, msg) {
					nacked.Add(1)
					if errors.Is(err, luatx.ErrOutcomeUnknown) {
						unknown.Add(1)
					} else if past.HExists(ctx, effects, msg.ID()).Val() {
						t.Errorf("%s was nacked and applied: %v", msg.ID(), err)
					}
					msg = in.Message("c", rig.EntryOf(t, msg), rig.Order(msg.ID()))
				}
			}
		})
	}
	running.Wait()
	stop()
	t.Logf("%d nacked, %d of them of unknown outcome", nacked.Load(), unknown.Load())
	applied := past.HGetAll(ctx, effects).Val()
	for id, times := range applied {
		if times != "1" {
			t.Errorf("%s was applied %s times", id, times)
		}
	}
	events := past.ZCard(ctx, link.Of(tr).Scripts.Shard(slot.OfTag("a")).Key("pending")).Val()
	if len(applied) != workers*each || events != workers*each || in.Pending() != 0 {
		t.Errorf("of %d messages %d are applied, %d have an event, %d are pending", workers*each, len(applied), events, in.Pending())
	}
}
