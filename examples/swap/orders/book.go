package orders

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
)

// RedisBook is the adapter. It is the same in both modes, because it sends its commands through the context.
type RedisBook struct {
	client redis.UniversalClient
	keys   luatx.Keyspace
}

// NewRedisBook returns a Book in Redis.
func NewRedisBook(client redis.UniversalClient, keys luatx.Keyspace) RedisBook {
	return RedisBook{client, keys}
}

// Place implements Book.
func (b RedisBook) Place(ctx context.Context, order PlaceOrder) error {
	entered, err := b.keys.Key(order.Customer, "orders")
	if err != nil {
		return err
	}
	spent, err := b.keys.Key(order.Customer, "spent")
	if err != nil {
		return err
	}
	cmds := luatx.CmdableFromContext(ctx, b.client)
	return errors.Join(
		luatx.Queued(cmds.HIncrBy(ctx, entered, order.Order, 1)),
		luatx.Queued(cmds.IncrBy(ctx, spent, order.Pence)),
	)
}

// read returns the number of a customer's orders, how many of them were entered more than once, and the spending.
func (b RedisBook) read(ctx context.Context, customer string) (entered, twice int, spent int64, err error) {
	key, err := b.keys.Key(customer, "orders")
	if err != nil {
		return 0, 0, 0, err
	}
	times, err := b.client.HGetAll(ctx, key).Result()
	if err != nil {
		return 0, 0, 0, err
	}
	for _, n := range times {
		if n != "1" {
			twice++
		}
	}
	if key, err = b.keys.Key(customer, "spent"); err != nil {
		return 0, 0, 0, err
	}
	text, err := b.client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return len(times), twice, 0, nil
	}
	if err != nil {
		return 0, 0, 0, err
	}
	spent, err = strconv.ParseInt(text, 10, 64)
	return len(times), twice, spent, err
}
