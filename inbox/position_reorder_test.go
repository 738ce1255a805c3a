package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
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
