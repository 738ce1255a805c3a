package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

// reversed is a network that loses the first request with a position. Requests that have a transaction each then arrive in the
// reverse order of their offsets.
type reversed struct {
	armed   atomic.Bool // the next request is lost
	lost    atomic.Bool
	arrived [4]chan struct{} // by offset, from 1 on
	once    [4]sync.Once
}

func newReversed() *reversed {
	r := &reversed{}
	for i := range r.arrived {
		r.arrived[i] = make(chan struct{})
	}
	return r
}

func (r *reversed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *reversed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return r.pass(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (r *reversed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return r.pass(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

func (r *reversed) pass(ctx context.Context, cmds []redis.Cmder, next func() error) error {
	text, offsets, highest := "", 0, 0
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			if shared, ok := arg.(*string); ok {
				arg = *shared
			}
			text += fmt.Sprint(arg)
		}
	}
	for offset := 1; offset < len(r.arrived); offset++ {
		if strings.Contains(text, at(offset, nil).Offset) {
			offsets, highest = offsets+1, offset
		}
	}
	switch {
	case highest == 0 || !r.armed.Load():
		return next()
	case r.lost.CompareAndSwap(false, true):
		for _, cmd := range cmds {
			cmd.SetErr(errReset)
		}
		return errReset
	case offsets <= 2 && highest+1 < len(r.arrived): // its own offset and the one in front of it
		select {
		case <-r.arrived[highest+1]:
		case <-ctx.Done():
		}
	}
	defer r.once[highest].Do(func() { close(r.arrived[highest]) })
	return next()
}

func TestMessagesCommitThoughTheirRepeatedRequestsArriveInReverse(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		network := newReversed()
		client.AddHook(network)
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		key := rig.Key(t, tr, "a", "n")
		r := router(t, "bill", func(ctx context.Context) error {
			return luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, key))
		}, luatx.Middleware(tr), inbox.Position(inbox.PositionConfig{}))
		tenure := &message.Tenure{}
		_, err := r.Process(ctx, ordered(at(0, tenure)))
		redistest.Must(t, err)

		network.armed.Store(true)
		var handlers sync.WaitGroup
		g := link.Of(tr).Gather(ctx, 3, 0, nil)
		for offset := 1; offset <= 3; offset++ {
			msg := ordered(at(offset, tenure, func(p *message.Position) { p.After = at(offset-1, nil).Offset }))
			handlers.Go(func() {
				defer g.Leave()
				if _, err := r.Process(g.Context(ctx), msg); err != nil {
					t.Errorf("message %s: %v", msg.ID(), err)
				}
			})
		}
		handlers.Wait()
		if n, err := client.Get(ctx, key).Int(); err != nil || n != 4 {
			t.Errorf("%d messages are applied, want 4; %v", n, err)
		}
	})
}

// proxied returns a Router that adds one to a counter of aggregate a for every message, and adds to a hash of another type for the
// message with the id fails. Its commits pass the proxy, and are those that the matcher finds.
func proxied(t *testing.T, fails string) (*message.Router, *luatx.Transactor, *respproxy.Proxy, respproxy.Matcher) {
	t.Helper()
	server, _ := redistest.Mini(t)
	proxy := redistest.Proxy(t, server.Addr())
	client := redistest.Admin(t, proxy.Addr()) // miniredis has no other user
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.CommitTimeout = 2 * time.Second })
	r := router(t, "bill", func(ctx context.Context) error {
		tx, _ := luatx.TxFromContext(ctx)
		if msg, _ := message.MessageFromContext(ctx); msg.ID() == fails {
			tx.Pipeline().HSet(ctx, rig.Key(t, tr, "a", "n"), "f", "v")
		}
		return rig.Incr(tx)
	}, luatx.Middleware(tr), inbox.Position(inbox.PositionConfig{}))
	return r, tr, proxy, respproxy.Containing(rig.ScriptSHA(t, tr, "commit"))
}

func TestMessageIsEarlyAfterOneRequestIfTheOneInFrontDoesNotCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		offsets []int
		fails   string
	}{"which is missing": {[]int{2, 3}, ""}, "which fails": {[]int{1, 2}, "order-1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, tr, proxy, isCommit := proxied(t, c.fails)
			ctx, tenure := redistest.Soon(t), &message.Tenure{}
			_, err := r.Process(ctx, ordered(at(0, tenure)))
			redistest.Must(t, err)
			before := len(proxy.Commands(isCommit))
			var handlers sync.WaitGroup
			g := link.Of(tr).Gather(ctx, len(c.offsets), 0, nil)
			for _, offset := range c.offsets {
				msg := ordered(at(offset, tenure, func(p *message.Position) { p.After = at(offset-1, nil).Offset }))
				handlers.Go(func() {
					defer g.Leave()
					_, err := r.Process(g.Context(ctx), msg)
					_, early := errors.AsType[*message.EarlyError](err)
					if err == nil || early == (msg.ID() == c.fails) {
						t.Errorf("message %s: %v", msg.ID(), err)
					}
				})
			}
			handlers.Wait()
			if n := len(proxy.Commands(isCommit)) - before; n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestOrderIsReportedAsBrokenOnlyIfNoLostRequestCanCommit(t *testing.T) {
	t.Parallel()
	r, _, proxy, isCommit := proxied(t, "")
	ctx, old, owner := redistest.Soon(t), &message.Tenure{}, &message.Tenure{}
	for offset, tenure := range []*message.Tenure{old, owner} {
		_, err := r.Process(ctx, ordered(at(offset, tenure)))
		redistest.Must(t, err)
	}
	const certain = "luatx: not committed: "
	proxy.Next(1, isCommit, respproxy.CutRequest())
	stale := ordered(at(2, old))
	_, err := r.Process(ctx, stale)
	if !errors.Is(err, luatx.ErrFenced) || !strings.Contains(err.Error(), certain) || !rig.Settled(stale) || stale.Err() != nil {
		t.Errorf("the former owner: %v, nacked with %v; want ErrFenced, and a message that is released", err, stale.Err())
	}
	proxy.Next(1, isCommit, respproxy.CutRequest())
	_, err = r.Process(ctx, ordered(at(9, owner, func(p *message.Position) { p.After = at(8, nil).Offset })))
	if _, early := errors.AsType[*message.EarlyError](err); !early || !strings.Contains(err.Error(), certain) {
		t.Errorf("a message without the one in front of it: %v", err)
	}
}
