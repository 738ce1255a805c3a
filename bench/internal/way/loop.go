package way

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// plainLoop is the lower bound of the cost: a loop that reads many messages and pipelines the raw commands of all of them.
// It is not atomic, so a crash loses or repeats a whole batch.
type plainLoop struct {
	work
	batch  int
	loops  int
	events string // the stream for events

	inHand sync.RWMutex // read-locked until the outcome of a batch is known
}

func (l *plainLoop) begin(ctx context.Context, failed func(error)) (stop func()) {
	return background(ctx, func(ctx context.Context, running *sync.WaitGroup) {
		for range l.loops {
			running.Go(func() {
				for ctx.Err() == nil {
					if !l.next(ctx, failed) {
						return
					}
				}
			})
		}
	})
}

// next reads and handles a batch. It reports whether that succeeded.
func (l *plainLoop) next(ctx context.Context, failed func(error)) bool {
	batch, err := l.readGroup(ctx, l.batch)
	if err == nil && len(batch) > 0 {
		l.inHand.RLock()
		defer l.inHand.RUnlock()
		err = l.handle(context.WithoutCancel(ctx), batch)
	}
	if err != nil {
		failed(err)
	}
	return err == nil
}

// handle needs two round trips for a batch: the checks, and everything else.
func (l *plainLoop) handle(ctx context.Context, batch []redis.XMessage) error {
	pipe := l.client.Pipeline()
	fresh := make([]*redis.BoolCmd, len(batch))
	for i, entry := range batch {
		id, _ := entry.Values["ce_id"].(string)
		fresh[i] = l.mark(ctx, pipe, id)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	ids := make([]string, len(batch))
	for i, entry := range batch {
		ids[i] = entry.ID
		if fresh[i].Val() {
			id, _ := entry.Values["ce_id"].(string)
			l.business(ctx, pipe)
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: l.events, Values: []any{"id", id + "-placed", "data", l.event}})
		}
	}
	pipe.XAck(ctx, l.in, group, ids...)
	_, err := pipe.Exec(ctx)
	return err
}

func (l *plainLoop) through(ctx context.Context, n int) (bool, error) {
	done, err := l.all(ctx, n, l.acknowledged, l.entries(l.events))
	if done { // a pipeline with a failed command acknowledges its batch too
		l.inHand.Lock()
		defer l.inHand.Unlock()
	}
	return done, err
}
