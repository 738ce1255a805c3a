package way

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
)

const (
	group     = "g"
	outStream = "published" // destination of published events, in a slot of its own

	retention  = 24 * time.Hour
	feedAtOnce = 1000
	// blockFor is how long a reader waits for new entries, and how long a round waits for its readers to end.
	blockFor = 100 * time.Millisecond
)

// keyspace has one tag. The server's work does not depend on it, and a relay has one shard to visit.
var keyspace = luatx.Partitions(1)

// work is the work for each message.
type work struct {
	client                    redis.UniversalClient
	tag                       string
	in, hash, counter, outbox string // keys in the tag's slot
	event                     []byte // body of the event
}

// newWork returns work whose events have a JSON body of the given size in bytes.
func newWork(client redis.UniversalClient, payload int) (work, error) {
	tag, err := keyspace.Tag("a")
	const frame = len(`{"note":""}`)
	w := work{client: client, tag: tag, event: fmt.Appendf(nil, `{"note":"%s"}`, bytes.Repeat([]byte{'x'}, max(payload-frame, 0)))}
	for key, part := range map[*string]string{&w.in: "in", &w.hash: "order", &w.counter: "orders", &w.outbox: "outbox"} {
		*key = keyspace.TagKey(tag, part)
	}
	return w, err
}

// business queues or runs the writes of a handler.
func (w *work) business(ctx context.Context, c redis.Cmdable) {
	c.HSet(ctx, w.hash, "product", "book", "status", "placed", "price", 1200)
	c.Incr(ctx, w.counter)
}

// mark is the duplicate check of ways that mark an id by a key. It returns false if the id was marked before.
func (w *work) mark(ctx context.Context, client redis.Cmdable, id string) *redis.BoolCmd {
	return client.SetNX(ctx, w.markKey(id), 1, retention)
}

func (w *work) markKey(id string) string { return "{" + w.tag + "}:seen:" + id }

// feed adds messages to the input stream, in the binary mode of CloudEvents.
func (w *work) feed(ctx context.Context, n int) error {
	if err := w.client.XGroupCreateMkStream(ctx, w.in, group, "0").Err(); err != nil {
		return err
	}
	return inPipelines(ctx, w.client, n, func(pipe redis.Pipeliner, i int) {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: w.in, Values: []any{
			"ce_specversion", "1.0", "ce_id", orderID(i), "ce_source", "/shop", "ce_type", "order", "ce_subject", "a",
			"content-type", "application/json", "data", input,
		}})
	})
}

// input is the body of every message.
const input = `{"product":"book"}`

func orderID(i int) string { return "order-" + strconv.Itoa(i) }

// inPipelines queues n commands and sends them in batches.
func inPipelines(ctx context.Context, client redis.UniversalClient, n int, do func(pipe redis.Pipeliner, i int)) error {
	for from := 0; from < n; from += feedAtOnce {
		pipe := client.Pipeline()
		for i := from; i < min(from+feedAtOnce, n); i++ {
			do(pipe, i)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// background starts goroutines, and returns a function that stops them.
func background(ctx context.Context, begin func(ctx context.Context, running *sync.WaitGroup)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	begin(ctx, &running)
	return func() {
		cancel()
		running.Wait()
	}
}

// readGroup reads new entries as the only consumer of the group. It waits briefly for them.
func (w *work) readGroup(ctx context.Context, count int) ([]redis.XMessage, error) {
	read, err := w.client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: "c", Streams: []string{w.in, ">"}, Count: int64(count), Block: blockFor,
	}).Result()
	if err != nil && !errors.Is(err, redis.Nil) && ctx.Err() == nil {
		return nil, err
	}
	if len(read) == 0 {
		return nil, nil
	}
	return read[0].Messages, nil
}

// handled reports whether n messages have taken effect, each once.
func (w *work) handled(ctx context.Context, n int) (bool, error) {
	orders, err := w.client.Get(ctx, w.counter).Int()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if orders > n {
		return false, fmt.Errorf("%d messages took effect %d times", n, orders)
	}
	return orders == n, err
}

// acknowledged reports whether n messages of the input stream are handled and acknowledged.
func (w *work) acknowledged(ctx context.Context, n int) (bool, error) {
	if done, err := w.handled(ctx, n); !done || err != nil {
		return false, err
	}
	pending, err := w.client.XPending(ctx, w.in, group).Result()
	return err == nil && pending.Count == 0, err
}

// all runs checks one after another, as long as they return true.
func (w *work) all(ctx context.Context, n int, questions ...question) (bool, error) {
	for _, ask := range questions {
		if yes, err := ask(ctx, n); !yes || err != nil {
			return false, err
		}
	}
	return true, nil
}

type question func(ctx context.Context, n int) (bool, error)

// entries returns a check whether a stream has n entries.
func (w *work) entries(stream string) question {
	return func(ctx context.Context, n int) (bool, error) {
		length, err := w.client.XLen(ctx, stream).Result()
		return length == int64(n), err
	}
}
