package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
)

const (
	// consumeLinger is how long handlers that are done wait for the slower ones of their batch.
	consumeLinger = 20 * time.Millisecond
	// consumeShutdown is how long handlers may go on after the context has ended.
	consumeShutdown = 10 * time.Second
)

// Consume reads up to BatchSize messages at a time, runs process on each, all of them at once, and commits what their
// handlers recorded together: one script for the batch, and the next read in the same pipeline. Process is an
// Engine's, or a Router's, with luatx.Middleware in it; it settles the message, and its error is logged. Handlers
// that are done wait up to 20 ms for the slower ones of their batch.
//
// Every message is a transaction for itself, as under Subscribe; what one does changes nothing for the others. A
// larger BatchSize makes for larger scripts: 64 take a server about half a millisecond.
//
// It returns when ctx has ended and what was in flight is settled: handlers get 10 s, then their contexts end. The
// error is that of making the group, or ErrSubscribed. The Transactor's client must reach the stream.
func (s *Subscriber) Consume(ctx context.Context, t *luatx.Transactor, process func(context.Context, *message.RawMessage) error) error {
	if t == nil || process == nil {
		return errors.New("stream: Consume needs a Transactor and a function")
	}
	if !s.active.CompareAndSwap(false, true) {
		return ErrSubscribed
	}
	// The next batch is read while this one commits.
	sub, err := newSubscription(ctx, s, max(s.cfg.MaxInFlight, 2*s.cfg.BatchSize))
	if err != nil {
		s.active.Store(false)
		return err
	}
	work, cancel := context.WithCancel(sub.detached)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(consumeShutdown, cancel) })()
	c := &consumption{newReader(sub), work, t, process}
	sub.run(ctx, c.loop)
	return nil
}

// consumption is one run of Consume.
type consumption struct {
	*reader
	work    context.Context // of the handlers
	t       *luatx.Transactor
	process func(context.Context, *message.RawMessage) error
}

func (c *consumption) loop(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		failures = c.rest(ctx, failures, c.turn(ctx))
	}
}

func (c *consumption) turn(ctx context.Context) error {
	if err := c.upkeep(ctx); err != nil {
		return err
	}
	if batch := c.collect(); len(batch) > 0 {
		return c.handle(ctx, batch)
	}
	return c.readNew(ctx)
}

// collect takes what has been read off the channel.
func (c *consumption) collect() []*message.RawMessage {
	var batch []*message.RawMessage
	for len(batch) < c.cfg.BatchSize {
		select {
		case msg := <-c.out:
			batch = append(batch, msg)
		default:
			return batch
		}
	}
	return batch
}

// handle runs the handlers of a batch, commits it, and reads the next.
func (c *consumption) handle(ctx context.Context, batch []*message.RawMessage) error {
	var next *redis.XStreamSliceCmd
	places := 0
	if ctx.Err() == nil {
		places, _ = c.ledger.tryReserve(c.cfg.BatchSize, false)
	}
	g := c.t.Gather(c.work, len(batch), consumeLinger, func() []redis.Cmder {
		if places == 0 {
			return nil
		}
		next = c.groupCommand(c.work, places, noWait)
		return []redis.Cmder{readOnce{next}}
	})
	var handlers sync.WaitGroup
	for _, msg := range batch {
		handlers.Go(func() {
			defer g.Leave()
			if err := c.run(g.Context(c.work), msg); err != nil {
				c.outage.log.Error("stream: message not handled", "id", msg.ID(), "error", err)
			}
		})
	}
	handlers.Wait()
	if next == nil {
		c.ledger.release(places)
		return nil
	}
	return c.take(next, places)
}

func (c *consumption) run(ctx context.Context, msg *message.RawMessage) (err error) {
	defer recoverTo(&err)
	return c.process(ctx, msg)
}
