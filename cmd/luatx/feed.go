package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	entryid "github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/stream"
)

// feedChunk is the maximum number of orders that are written at once. feedPause is the pause before the next check for due
// orders.
const (
	feedChunk = 50
	feedPause = 5 * time.Millisecond
)

// feeder writes the orders to the streams of their customers' tags, and records their entries. It writes at the given rate,
// and stops at its limit until the limit is raised.
type feeder struct {
	client redis.UniversalClient
	keys   layout
	orders []shop.Order
	rate   int // orders per second, or 0 for no limit

	limit atomic.Int64 // number of orders

	mu      sync.Mutex
	entries map[string][]string // ids by stream, in order
	fed     int
}

func newFeeder(client redis.UniversalClient, keys layout, orders []shop.Order, rate int) *feeder {
	return &feeder{client: client, keys: keys, orders: orders, rate: rate, entries: map[string][]string{}}
}

// run writes all orders, or stops when ctx ends.
func (f *feeder) run(ctx context.Context) error {
	start := time.Now()
	for next := 0; next < len(f.orders); {
		n := min(feedChunk, len(f.orders)-next, int(f.limit.Load())-next)
		if f.rate > 0 {
			n = min(n, int(time.Since(start).Seconds()*float64(f.rate))+1-next)
		}
		if n <= 0 {
			if !sleep.For(ctx, feedPause) {
				return ctx.Err()
			}
			continue
		}
		if err := f.write(ctx, f.orders[next:next+n]); err != nil {
			return fmt.Errorf("write orders: %w", err)
		}
		next += n
	}
	return nil
}

func (f *feeder) write(ctx context.Context, orders []shop.Order) error {
	pipe := f.client.Pipeline()
	keys, cmds := make([]string, len(orders)), make([]*redis.StringCmd, len(orders))
	for i, order := range orders {
		tag, err := f.keys.space.Tag(order.Customer)
		if err != nil {
			return err
		}
		msg, err := order.ToMessage()
		if err != nil {
			return err
		}
		values, err := stream.Binary(msg)
		if err != nil {
			return err
		}
		keys[i] = f.keys.orders(tag)
		cmds[i] = pipe.XAdd(ctx, &redis.XAddArgs{Stream: keys[i], Values: values})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, cmd := range cmds {
		f.entries[keys[i]] = append(f.entries[keys[i]], cmd.Val())
	}
	f.fed += len(orders)
	return nil
}

// upTo returns the number of orders in a stream up to an entry, which is the number that a group has read.
func (f *feeder) upTo(key string, last string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sort.Search(len(f.entries[key]), func(i int) bool { return entryid.Compare(last, f.entries[key][i]) < 0 })
}
