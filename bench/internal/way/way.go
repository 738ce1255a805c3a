package way

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/measure"
)

// The names of the ways that figures use.
const (
	ThreeStep = "stack.Pipelined, 16 workers"
	Batches   = "luatx, batches of 64"
	Inline    = "luatx, batches of 64, inline relay"
	Asynq     = "asynq"
	Watermill = "watermill-redisstream"
)

// line is a way from end to end.
type line interface {
	// feed adds n messages to an empty server.
	feed(ctx context.Context, n int) error
	// begin starts to process messages. It calls failed with each error. The function stop returns when nothing runs any more.
	begin(ctx context.Context, failed func(error)) (stop func())
	// through reports whether all of n messages are through and nothing is left of them. It returns an error if more than that
	// was done.
	through(ctx context.Context, n int) (bool, error)
}

// Consume compares how messages are consumed, transacted and acknowledged. Their events stay in an outbox.
func Consume() []measure.Way {
	var t turns
	return []measure.Way{
		t.way("pipeline mode by hand, 16 workers", func(w work) (line, error) {
			return &threeStep{work: w, workers: 16}, nil
		}),
		t.way("pipeline mode by hand, 16 workers with a reader each", func(w work) (line, error) {
			return &threeStep{work: w, workers: 16, alone: true}, nil
		}),
		t.way(ThreeStep, func(w work) (line, error) {
			return (&service{work: w, inFlight: 16, pipelined: true}).connect()
		}),
		t.way("luatx, 16 workers", func(w work) (line, error) {
			return (&service{work: w, inFlight: 16}).connect()
		}),
		t.way("luatx, batches of 16", func(w work) (line, error) {
			return (&service{work: w, inFlight: 16, batches: true}).connect()
		}),
		t.way(Batches, func(w work) (line, error) {
			return (&service{work: w, inFlight: 64, batches: true}).connect()
		}),
		t.way("plain loop, 64 messages at a time", func(w work) (line, error) {
			return &plainLoop{work: w, batch: 64, loops: 1, events: w.outbox}, nil
		}),
	}
}

// Whole compares the whole way: consume, transact, publish, settle, with 64 messages in flight.
func Whole() []measure.Way {
	const inFlight = 64
	var t turns
	return []measure.Way{
		t.way(Inline, func(w work) (line, error) {
			return (&service{work: w, inFlight: inFlight, batches: true, publish: true}).connect()
		}),
		t.way("luatx, batches of 64, cold relay", func(w work) (line, error) {
			return (&service{work: w, inFlight: inFlight, batches: true, publish: true, noInline: true}).connect()
		}),
		t.way("luatx, 64 workers, inline relay", func(w work) (line, error) {
			return (&service{work: w, inFlight: inFlight, publish: true}).connect()
		}),
		t.way(Asynq, func(w work) (line, error) { return &onAsynq{w, inFlight}, nil }),
		t.way(Watermill, func(w work) (line, error) { return &onWatermill{w, inFlight}, nil }),
		t.way("plain loops, 2 with 32 messages each", func(w work) (line, error) {
			return &plainLoop{work: w, batch: inFlight / 2, loops: 2, events: outStream}, nil
		}),
	}
}

// turns is the shared state of ways that alternate on one server. Their rounds begin by emptying it, so nobody else may use
// it.
type turns struct {
	ending sync.WaitGroup // until the processing of the previous round has ended
}

// way returns a line as a Way.
func (t *turns) way(name string, build func(work) (line, error)) measure.Way {
	return measure.Way{Name: name, Setup: func(_ context.Context, c measure.Cell) (*measure.Running, error) {
		c.Callers = connections
		r := &rounds{turns: t, client: c.Client()}
		work, err := newWork(r.client, c.Payload)
		if err == nil {
			r.line, err = build(work)
		}
		if err != nil {
			_ = r.client.Close()
			return nil, err
		}
		return &measure.Running{Prepare: r.prepare, Round: r.run, CPU: measure.ServerCPU(r.client), Close: r.close}, nil
	}}
}

const (
	// connections is enough for 64 handlers and as many waiting readers.
	connections = 160
	// lookEvery is the interval at which a round checks whether it is over.
	lookEvery = 2 * time.Millisecond
	// roundTimeout is the time after which a round fails.
	roundTimeout = 2 * time.Minute
)

// rounds runs a line repeatedly.
type rounds struct {
	*turns
	line
	client redis.UniversalClient
}

func (r *rounds) prepare(ctx context.Context, n int) error {
	r.ending.Wait()
	if err := r.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	return r.feed(ctx, n)
}

// run processes n messages. The processing stops afterwards, because waiting for its readers is not part of the work.
func (r *rounds) run(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, roundTimeout, fmt.Errorf("a round of %d messages timed out", n))
	failing, fail := context.WithCancelCause(ctx)
	stop := r.begin(context.WithoutCancel(ctx), fail)
	defer r.ending.Go(func() {
		stop()
		cancel()
		fail(nil)
	})
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-failing.Done():
			return context.Cause(failing)
		case <-look.C:
		}
		if done, err := r.through(failing, n); done || err != nil {
			return errors.Join(err, context.Cause(failing))
		}
	}
}

func (r *rounds) close() {
	r.ending.Wait()
	_ = r.client.Close()
}
