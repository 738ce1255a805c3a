package way

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

const (
	asynqIn  = "in"
	asynqOut = "out"
)

// onAsynq is a service on asynq. Its handler marks the task's id, writes, and enqueues the next task; the server settles
// the task in a script of its own. As the documentation of asynq recommends, Concurrency is the number of tasks in flight,
// and one client serves all workers, with a connection for each in its pool. The intervals are the defaults, seconds,
// except for the check of an empty queue, which would delay the end of a round.
type onAsynq struct {
	work
	inFlight int
}

// feed enqueues tasks concurrently, as a service would.
func (a *onAsynq) feed(ctx context.Context, n int) error {
	client := asynq.NewClientFromRedisClient(a.client)
	errs := make([]error, a.inFlight)
	var feeders sync.WaitGroup
	for f := range errs {
		feeders.Go(func() {
			for i := f; i < n && errs[f] == nil; i += a.inFlight {
				_, errs[f] = client.EnqueueContext(ctx, asynq.NewTask("order", []byte(input)), asynq.TaskID(orderID(i)), asynq.Queue(asynqIn))
			}
		})
	}
	feeders.Wait()
	return errors.Join(errs...)
}

func (a *onAsynq) begin(ctx context.Context, failed func(error)) (stop func()) {
	next := asynq.NewClientFromRedisClient(a.client)
	server := asynq.NewServerFromRedisClient(a.client, asynq.Config{
		Concurrency:       a.inFlight,
		TaskCheckInterval: 100 * time.Millisecond,
		Queues:            map[string]int{asynqIn: 1},
		BaseContext:       func() context.Context { return ctx },
		LogLevel:          asynq.FatalLevel,
		ErrorHandler:      asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { failed(err) }),
	})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return a.handle(ctx, next) }))
	if err != nil {
		failed(err)
		return func() {}
	}
	return server.Shutdown
}

func (a *onAsynq) handle(ctx context.Context, next *asynq.Client) error {
	id, ok := asynq.GetTaskID(ctx)
	if !ok {
		return errors.New("the task has no id")
	}
	fresh, err := a.mark(ctx, a.client, id).Result()
	if err != nil || !fresh {
		return err
	}
	pipe := a.client.TxPipeline()
	a.business(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	_, err = next.EnqueueContext(ctx, asynq.NewTask("placed", a.event), asynq.TaskID(id+"-placed"), asynq.Queue(asynqOut))
	return err
}

// through reports whether every task is settled and every next task enqueued.
func (a *onAsynq) through(ctx context.Context, n int) (bool, error) {
	lengths := func(ctx context.Context, n int) (bool, error) {
		active, out := a.client.LLen(ctx, asynqKey(asynqIn, "active")), a.client.LLen(ctx, asynqKey(asynqOut, "pending"))
		return active.Val() == 0 && out.Val() == int64(n), errors.Join(active.Err(), out.Err())
	}
	return a.all(ctx, n, a.handled, lengths)
}

func asynqKey(queue, name string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, name) }
