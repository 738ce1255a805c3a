package stack_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
)

// The code of a service. It does not depend on the mode.

type charge struct {
	Customer, Order string
	Pence           int
}

type (
	charged struct {
		Order string
		Pence int
	}
	flagged struct{ Order string }
)

// accounts is the port of the handler.
type accounts interface {
	Charge(ctx context.Context, c charge) error
}

// newHandler charges customers, and flags large charges.
func newHandler(repo accounts) message.Handler {
	return message.NewCommandHandler(func(ctx context.Context, c charge) ([]any, error) {
		if err := repo.Charge(ctx, c); err != nil {
			return nil, err
		}
		events := []any{charged{c.Order, c.Pence}}
		if c.Pence > 900 {
			events = append(events, flagged{c.Order})
		}
		return events, nil
	}, message.CommandHandlerConfig{
		Source: "/billing",
		Attributes: func(command, _ any) message.Attributes {
			c, _ := command.(charge)
			return message.Attributes{message.AttrSubject: c.Customer}
		},
	})
}

// redisAccounts is the adapter.
type redisAccounts struct {
	client   redis.UniversalClient
	keyspace luatx.Keyspace
}

func (r redisAccounts) keys(customer string) (sums, orders, journal string, err error) {
	if sums, err = r.keyspace.Key(customer, "sums"); err != nil {
		return "", "", "", err
	}
	if orders, err = r.keyspace.Key(customer, "orders"); err != nil {
		return "", "", "", err
	}
	journal, err = r.keyspace.Key(customer, "journal")
	return sums, orders, journal, err
}

func (r redisAccounts) Charge(ctx context.Context, c charge) error {
	_, _, journal, err := r.keys(c.Customer)
	if err != nil {
		return err
	}
	return r.chargeInto(ctx, c, journal)
}

func (r redisAccounts) chargeInto(ctx context.Context, c charge, journal string) error {
	sums, orders, _, err := r.keys(c.Customer)
	if err != nil {
		return err
	}
	return c.book(ctx, r.client, sums, orders, journal)
}

// book issues the commands of a charge on keys.
func (c charge) book(ctx context.Context, client redis.UniversalClient, sums, orders, journal string) error {
	cmds := luatx.CmdableFromContext(ctx, client)
	for _, cmd := range []redis.Cmder{
		cmds.HIncrBy(ctx, sums, "spent", int64(c.Pence)),
		cmds.SAdd(ctx, orders, c.Order),
		cmds.LPush(ctx, journal, c.Order),
		cmds.HIncrBy(ctx, sums, "charges", 1),
	} {
		if err := luatx.Queued(cmd); err != nil {
			return err
		}
	}
	return nil
}

// chargesOf returns n charges of a number of customers.
func chargesOf(n, customers int) []charge {
	list := make([]charge, n)
	for i := range list {
		list[i] = charge{fmt.Sprint("c", i%customers), fmt.Sprintf("order-%03d", i), 1 + i*7919%1000}
	}
	return list
}
