package way

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// threeStep is how services work without luatx: each worker needs three round trips for each message. The event goes to an
// outbox stream, in the MULTI … EXEC of the business writes. Either one reader reads many messages at a time for all
// workers, which needs the fewest round trips, or each worker reads for itself, one message at a time.
type threeStep struct {
	work
	workers int
	alone   bool // each worker reads for itself
}

func (t *threeStep) begin(ctx context.Context, failed func(error)) (stop func()) {
	return background(ctx, func(ctx context.Context, running *sync.WaitGroup) {
		handle := func(entry redis.XMessage) {
			if err := t.handle(context.WithoutCancel(ctx), entry); err != nil {
				failed(err)
			}
		}
		if t.alone {
			for range t.workers {
				running.Go(func() { t.read(ctx, 1, failed, handle) })
			}
		} else {
			entries := make(chan redis.XMessage, t.workers)
			running.Go(func() {
				defer close(entries)
				t.read(ctx, t.workers, failed, func(entry redis.XMessage) { entries <- entry })
			})
			for range t.workers {
				running.Go(func() {
					for entry := range entries {
						handle(entry)
					}
				})
			}
		}
	})
}

// read passes on new entries until ctx ends.
func (t *threeStep) read(ctx context.Context, count int, failed func(error), give func(redis.XMessage)) {
	for ctx.Err() == nil {
		batch, err := t.readGroup(ctx, count)
		if err != nil {
			failed(err)
			return
		}
		for _, entry := range batch {
			give(entry)
		}
	}
}

func (t *threeStep) handle(ctx context.Context, entry redis.XMessage) error {
	id, _ := entry.Values["ce_id"].(string)
	fresh, err := t.mark(ctx, t.client, id).Result()
	if err != nil {
		return err
	}
	if fresh {
		pipe := t.client.TxPipeline()
		t.business(ctx, pipe)
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: t.outbox, Values: []any{"id", id + "-placed", "data", t.event}})
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return t.client.XAck(ctx, t.in, group, entry.ID).Err()
}

func (t *threeStep) through(ctx context.Context, n int) (bool, error) {
	return t.all(ctx, n, t.acknowledged, t.entries(t.outbox))
}
