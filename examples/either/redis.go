package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/service"
)

// redisBook is the book in Redis.
type redisBook struct {
	client redis.UniversalClient
	keys   luatx.Keyspace
}

func (b redisBook) Place(ctx context.Context, order PlaceOrder) error {
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

// Spent returns the number of a customer's orders, and their total price.
func (b redisBook) Spent(ctx context.Context, customer string) (orders int, pence int64, err error) {
	entered, err := b.keys.Key(customer, "orders")
	if err != nil {
		return 0, 0, err
	}
	spent, err := b.keys.Key(customer, "spent")
	if err != nil {
		return 0, 0, err
	}
	n, err := b.client.HLen(ctx, entered).Result()
	if err != nil {
		return 0, 0, err
	}
	pence, err = b.client.Get(ctx, spent).Int64()
	return int(n), pence, err
}

// onRedis returns the service on Redis. Without an address it uses a server inside this process.
func onRedis(addr string) (store, error) {
	var embedded *miniredis.Miniredis
	if addr == "" {
		embedded = miniredis.NewMiniRedis()
		if err := embedded.StartAddr("127.0.0.1:0"); err != nil {
			return store{}, err
		}
		addr = embedded.Addr()
	}
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(addr, ",")})
	namespace := "either-" + strings.ToLower(rand.Text()[:8])
	closing := func() error {
		err := client.Close()
		if embedded != nil {
			embedded.Close()
		}
		return err
	}
	keyspace := luatx.Partitions(4).WithPrefix(namespace)
	transactor, err := luatx.New(client, luatx.Config{Namespace: namespace, Keyspace: keyspace})
	if err != nil {
		return store{}, errors.Join(err, closing())
	}
	return store{
		client: client,
		book:   redisBook{client, keyspace},
		config: func(publisher relay.Publisher) service.Config {
			return service.Config{Given: service.Given{Transactor: transactor, Publisher: publisher}}
		},
		close: closing,
	}, nil
}
