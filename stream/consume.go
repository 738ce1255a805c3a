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
	// consumeLinger is how long finished handlers wait for the slower ones of their batch.
	consumeLinger = 20 * time.Millisecond
	// consumeTurns is the number of batches at a time. One may commit while the handlers of the other run.
	consumeTurns = 2
	// handlerRoom is the number of bytes of its stack that a waiting handler uses. The garbage collector halves a stack of
	// which less than a quarter is used, and the next message would have to grow it again.
	handlerRoom = 2 << 10
)

// Processor handles and settles messages one at a time, and takes their outputs. *message.Engine and *message.Router are
// Processors.
type Processor interface {
	// Check returns an error if the Processor is invalid. Consume calls it before it reads.
	Check() error
	// ProcessRaw handles a message and settles it. If it returns an error, panics or calls runtime.Goexit, and has not settled the
	// message, the message is nacked.
	// Several goroutines call it at once.
	ProcessRaw(ctx context.Context, msg *message.RawMessage) error
}

// ProcessFunc is a function that handles and settles a message, as a Processor.
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

// checkConsume checks the arguments of Consume.
func checkConsume(t *luatx.Transactor, p Processor) error {
	if t == nil || p == nil {
		return errors.New("stream: Consume needs a Transactor and a Processor")
	}
	return p.Check()
}

// Consume reads up to BatchSize messages at a time and runs the Processor on each of them concurrently. Then it commits
// what their handlers recorded in one script for the whole batch, and sends the next read in the same pipeline. Two batches
// alternate: while one commits, the handlers of the other run. Finished handlers wait up to 20 ms for the slower ones of
// their batch.
//
// The Processor is an Engine or a Router that uses luatx.Middleware. Consume logs the errors of its ProcessRaw. Outputs
// need an outbox: if an output reaches the Processor, that is an error, and the message is nacked.
//
// As under Subscribe, every message is a transaction of its own, and no message affects the others. A larger BatchSize
// makes for larger scripts: a script for 64 messages occupies a server for about half a millisecond.
//
// Consume returns nil when ctx has ended and the messages in flight are settled. Handlers may continue for ShutdownTimeout;
// then their contexts end. Consume returns an error if the Processor's Check or the creation of the group fails, or
// ErrSubscribed. The Transactor's client must reach the stream.
func (s *Subscriber) Consume(ctx context.Context, t *luatx.Transactor, p Processor) error {
	if err := checkConsume(t, p); err != nil {
		return err
	}
	if !s.active.CompareAndSwap(false, true) {
		return ErrSubscribed
	}
	// Room to read the next batch while this one commits.
	sub, err := newSubscription(ctx, s, max(s.cfg.MaxInFlight, 2*consumeTurns*s.cfg.BatchSize))
	if err != nil {
		s.active.Store(false)
		return unlessEnded(ctx, err)
	}
	work, cancel := context.WithCancel(sub.detached)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.cfg.ShutdownTimeout, cancel) })()
	c := &consumption{newReader(sub), work, t, p, make(chan struct{}, 1)}
	sub.run(ctx, link.Of(t).Processes, c.loop)
	return nil
}

// unlessEnded returns the error of a consumer that did not begin. If ctx has ended, that is why, and unlessEnded returns nil.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ErrSubscribed) {
		return nil
	}
	return err
}

// consumption is one run of Consume.
type consumption struct {
	*reader
	work    context.Context // of the handlers
	t       *luatx.Transactor
	process Processor
	reading chan struct{} // full while one of the turns uses the reader
}

func (c *consumption) loop(ctx context.Context) {
	var turns sync.WaitGroup
	for range consumeTurns {
		turns.Go(func() { c.turns(ctx) })
	}
	turns.Wait()
}

// turns handles batches one after another.
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

// next adds messages that were already read, or waits for new ones if there are none.
func (c *consumption) next(ctx context.Context, batch []*message.RawMessage) ([]*message.RawMessage, error) {
	select {
	case c.reading <- struct{}{}:
		return c.read(ctx, batch)
	default:
	}
	if batch = c.collect(batch); len(batch) > 0 {
		return batch, nil
	}
	select { // the other turn reads
	case <-ctx.Done():
		return batch, nil
	case msg := <-c.out:
		return append(batch, msg), nil
	case c.reading <- struct{}{}: // stays with this turn, because two idle turns would only pass it to each other
		return c.read(ctx, batch)
	}
}

// read is next for the turn that has the reader.
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

// collect adds messages from the channel.
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

// handle runs the handlers of a batch, commits it, and returns the next batch. If a handler takes longer than the commit of the
// others, the next batch goes to the other turn.
func (c *consumption) handle(ctx context.Context, h *handlers, batch []*message.RawMessage) ([]*message.RawMessage, error) {
	var next group.Read
	var places int
	if ctx.Err() == nil {
		places, _ = c.ledger.tryReserve(c.cfg.BatchSize, false)
	}
	var late *time.Timer // passes the next batch on while a handler still runs
	var err error
	passed := make(chan struct{}) // closed when the next batch is in the channel
	g := link.Of(c.t).Gather(c.work, len(batch), consumeLinger, func() ([]redis.Cmder, func()) {
		if places == 0 {
			return nil, nil
		}
		next = c.member.NewRead(c.work, places, -1)
		return []redis.Cmder{next}, func() {
			late = time.AfterFunc(consumeLinger, func() {
				defer close(passed)
				var msgs []*message.RawMessage
				msgs, err = c.openReply(next, places)
				for _, msg := range msgs {
					c.out <- msg
				}
			})
		}
	})
	h.run(g, batch)
	if next.XStreamSliceCmd == nil {
		c.ledger.release(places)
		return nil, nil
	}
	if !late.Stop() {
		<-passed
		return nil, err
	}
	return c.openReply(next, places)
}

var errGoexit = errors.New("stream: the Processor ended its goroutine by runtime.Goexit; return an error instead")

// processed runs a Processor on a message. It returns a panic as an error, and nacks the message if the goroutine ends meanwhile.
func processed(ctx context.Context, process Processor, msg *message.RawMessage) (err error) {
	returned := false
	defer func() {
		if !returned && err == nil {
			msg.Nack(errGoexit) // has no effect if the message is settled
		}
	}()
	defer inbound.RecoverTo(&err)
	err = process.ProcessRaw(ctx, msg)
	returned = true
	return err
}

// handlers run the Processor on the messages of a batch, each in its own goroutine. The goroutines are reused for later
// batches, because growing the stack of a new goroutine is costly.
type handlers struct {
	*consumption
	tasks   chan task
	started int            // number of goroutines
	serving sync.WaitGroup // until the goroutines have ended
	open    sync.WaitGroup // until the tasks of a batch are done
}

type task struct {
	ctx context.Context
	g   link.Gathering
	msg *message.RawMessage
}

func newHandlers(c *consumption) *handlers {
	return &handlers{consumption: c, tasks: make(chan task, c.cfg.BatchSize)}
}

// run returns when all messages of the batch are handled.
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
	returned := false
	defer func() {
		if !returned {
			h.serving.Go(h.serve) // the Processor has ended this goroutine by runtime.Goexit
		}
	}()
	if err := processed(t.ctx, h.process, t.msg); err != nil {
		t.msg.Nack(err) // has no effect if the message is settled
		h.outage.log.Error("stream: message not handled", "id", t.msg.ID(), "error", err)
	}
	returned = true
}

// end stops the goroutines.
func (h *handlers) end() {
	close(h.tasks)
	h.serving.Wait()
}
