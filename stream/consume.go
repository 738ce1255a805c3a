package stream

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/message"
)

const (
	// consumeLinger is how long handlers that are done wait for the slower ones of their batch.
	consumeLinger = 20 * time.Millisecond
	// consumeTurns is how many batches there are at a time: one may commit while the other is handled.
	consumeTurns = 2
	// handlerRoom is how many bytes of its stack a waiting handler uses: the collector would halve a stack of which a
	// quarter is not used, and the next message would have to let it grow again.
	handlerRoom = 2 << 10
)

// Processor handles and settles messages one at a time, and takes their outputs. A *message.Engine and a *message.Router are
// Processors.
type Processor interface {
	// Check returns an error if the Processor is invalid. Consume calls it before it reads.
	Check() error
	// ProcessRaw handles a message and settles it. Several goroutines call it at once.
	ProcessRaw(ctx context.Context, msg *message.RawMessage) error
}

// ProcessFunc is a Processor made of a function that handles a message and settles it.
type ProcessFunc func(ctx context.Context, msg *message.RawMessage) error

// Check implements Processor. It returns an error if the function is nil.
func (f ProcessFunc) Check() error {
	if f == nil {
		return errors.New("stream: the ProcessFunc is nil")
	}
	return nil
}

// ProcessRaw implements Processor.
func (f ProcessFunc) ProcessRaw(ctx context.Context, msg *message.RawMessage) error {
	return f(ctx, msg)
}

// checkConsume checks what Consume is given.
func checkConsume(t *luatx.Transactor, p Processor) error {
	if t == nil || p == nil {
		return errors.New("stream: Consume needs a Transactor and a Processor")
	}
	return p.Check()
}

// Consume reads up to BatchSize messages at a time, runs the Processor on each, all of them at once, and commits what their
// handlers recorded together: one script for the batch, and the next read in the same pipeline. Two batches take turns:
// while one commits, the handlers of the other run. Handlers that are done wait up to 20 ms for the slower ones of their
// batch.
//
// The Processor is an Engine or a Router with luatx.Middleware in it. Consume logs the errors of its ProcessRaw. Outputs need
// an outbox: an output that reaches the Processor is an error, and the message is nacked.
//
// Every message is a transaction of its own, as under Subscribe, and does not affect the others. A larger
// BatchSize makes for larger scripts: 64 take a server about half a millisecond.
//
// It returns when ctx has ended and what was in flight is settled: handlers get ShutdownTimeout, then their contexts end. The
// error is that of the Processor's Check or of making the group, or ErrSubscribed. The Transactor's client must reach the stream.
func (s *Subscriber) Consume(ctx context.Context, t *luatx.Transactor, p Processor) error {
	if err := checkConsume(t, p); err != nil {
		return err
	}
	if !s.active.CompareAndSwap(false, true) {
		return ErrSubscribed
	}
	// The next batch is read while this one commits.
	sub, err := newSubscription(ctx, s, max(s.cfg.MaxInFlight, 2*consumeTurns*s.cfg.BatchSize))
	if err != nil {
		s.active.Store(false)
		return err
	}
	work, cancel := context.WithCancel(sub.detached)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.cfg.ShutdownTimeout, cancel) })()
	c := &consumption{newReader(sub), work, t, p, make(chan struct{}, 1)}
	sub.run(ctx, link.Of(t).Processes, c.loop)
	return nil
}

// consumption is one run of Consume.
type consumption struct {
	*reader
	work    context.Context // of the handlers
	t       *luatx.Transactor
	process Processor
	reading chan struct{} // holds something while one of the turns uses the reader
}

func (c *consumption) loop(ctx context.Context) {
	var turns sync.WaitGroup
	for range consumeTurns {
		turns.Go(func() { c.turns(ctx) })
	}
	turns.Wait()
}

// turns handles one batch after the other.
func (c *consumption) turns(ctx context.Context) {
	h := newHandlers(c)
	defer h.end()
	var batch []*message.RawMessage
	var err error
	failures := 0
	for ctx.Err() == nil {
		if batch, err = c.next(ctx, batch); err == nil && len(batch) > 0 {
			batch, err = c.handle(ctx, h, batch)
		}
		failures = c.rest(ctx, failures, err)
	}
	for _, msg := range batch {
		c.out <- msg // to be given back
	}
}

// next adds what others have read, or waits for something to read where there is nothing.
func (c *consumption) next(ctx context.Context, batch []*message.RawMessage) ([]*message.RawMessage, error) {
	select {
	case c.reading <- struct{}{}:
		return c.read(ctx, batch)
	default:
	}
	if batch = c.collect(batch); len(batch) > 0 {
		return batch, nil
	}
	select { // the other one reads
	case <-ctx.Done():
		return batch, nil
	case msg := <-c.out:
		return append(batch, msg), nil
	case c.reading <- struct{}{}: // kept: two that let go of it would hand it to each other
		return c.read(ctx, batch)
	}
}

// read is next for the one of the turns that has the reader.
func (c *consumption) read(ctx context.Context, batch []*message.RawMessage) ([]*message.RawMessage, error) {
	defer func() { <-c.reading }()
	if err := c.upkeep(ctx); err != nil {
		return batch, err
	}
	if batch = c.collect(batch); len(batch) > 0 {
		return batch, nil
	}
	return c.await(ctx)
}

// collect adds what has been read off the channel.
func (c *consumption) collect(batch []*message.RawMessage) []*message.RawMessage {
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

// handle runs the handlers of a batch, commits it, and returns the next.
func (c *consumption) handle(ctx context.Context, h *handlers, batch []*message.RawMessage) ([]*message.RawMessage, error) {
	var next group.Read
	places := 0
	if ctx.Err() == nil {
		places, _ = c.ledger.tryReserve(c.cfg.BatchSize, false)
	}
	g := link.Of(c.t).Gather(c.work, len(batch), consumeLinger, func() []redis.Cmder {
		if places == 0 {
			return nil
		}
		next = c.member.NewRead(c.work, places, -1)
		return []redis.Cmder{next}
	})
	h.run(g, batch)
	if next.XStreamSliceCmd == nil {
		c.ledger.release(places)
		return nil, nil
	}
	return c.openReply(next, places)
}

// processed runs a Processor on a message. Its panic is an error.
func processed(ctx context.Context, process Processor, msg *message.RawMessage) (err error) {
	defer inbound.RecoverTo(&err)
	return process.ProcessRaw(ctx, msg)
}

// handlers run the Processor on the messages of a batch, each in a goroutine of its own. Those stay for the next batch: what
// is costly about a new one is that its stack has to grow.
type handlers struct {
	*consumption
	tasks   chan task
	started int            // goroutines
	serving sync.WaitGroup // for them
	open    sync.WaitGroup // for the tasks of a batch
}

type task struct {
	ctx context.Context
	g   link.Gathering
	msg *message.RawMessage
}

func newHandlers(c *consumption) *handlers {
	return &handlers{consumption: c, tasks: make(chan task, c.cfg.BatchSize)}
}

// run returns when all messages of the batch have been handled.
func (h *handlers) run(g link.Gathering, batch []*message.RawMessage) {
	ctx := g.Context(h.work)
	h.open.Add(len(batch))
	for ; h.started < len(batch); h.started++ {
		h.serving.Go(h.serve)
	}
	for _, msg := range batch {
		h.tasks <- task{ctx, g, msg}
	}
	h.open.Wait()
}

func (h *handlers) serve() {
	var room [handlerRoom]byte
	for t := range h.tasks {
		h.one(t)
	}
	runtime.KeepAlive(&room)
}

func (h *handlers) one(t task) {
	defer h.open.Done()
	defer t.g.Leave()
	if err := processed(t.ctx, h.process, t.msg); err != nil {
		h.outage.log.Error("stream: message not handled", "id", t.msg.ID(), "error", err)
	}
}

// end lets the goroutines go.
func (h *handlers) end() {
	close(h.tasks)
	h.serving.Wait()
}
