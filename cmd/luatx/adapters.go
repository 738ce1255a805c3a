package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/cmd/luatx/internal/shop"
)

// redisBooks keeps the books and the stock in Redis. It is the same in both modes, because it sends its commands through
// the context and its counters need no reply.
type redisBooks struct {
	client redis.Cmdable
	keys   layout
}

// Book implements shop.Books.
func (b redisBooks) Book(ctx context.Context, invoice, customer string, pence int64) error {
	tag, err := b.keys.space.Tag(customer)
	if err != nil {
		return err
	}
	cmds := luatx.CmdableFromContext(ctx, b.client)
	return errors.Join(
		luatx.Queued(cmds.HIncrBy(ctx, b.keys.spent(tag), customer, pence)),
		luatx.Queued(cmds.HIncrBy(ctx, b.keys.bought(tag), customer, 1)),
		luatx.Queued(cmds.HIncrBy(ctx, b.keys.applied(tag), invoice, 1)),
	)
}

// Take implements shop.Books.
func (b redisBooks) Take(ctx context.Context, invoice, code string, units int64) error {
	tag, err := b.keys.space.Tag(code)
	if err != nil {
		return err
	}
	cmds := luatx.CmdableFromContext(ctx, b.client)
	return errors.Join(
		luatx.Queued(cmds.HIncrBy(ctx, b.keys.stock(tag), code, units)),
		luatx.Queued(cmds.HIncrBy(ctx, b.keys.lines(tag), shop.SoldKey(invoice, code), 1)),
	)
}
