package luatx_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
)

// A function reads values and decides. It commits only if the values are unchanged; otherwise it runs again.
func ExampleTx_Read() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	sell := func() error {
		_, err := transactor.Transact(ctx, "tent", func(tx *luatx.Tx) error {
			key, err := tx.Key("stock")
			if err != nil {
				return err
			}
			left, err := tx.Read().Get(ctx, key).Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			if left == 0 {
				return errors.New("sold out")
			}
			return tx.Pipeline().Set(ctx, key, left-1, 0).Err()
		})
		return err
	}
	key, err := transactor.Keyspace().Key("tent", "stock")
	if err != nil {
		log.Fatal(err)
	}
	client.Set(ctx, key, 1, 0)
	fmt.Println(sell())
	fmt.Println(sell())
	// Output:
	// <nil>
	// sold out
}

// A procedure reads and writes atomically on the server, as part of the commit, without conflicts or retries.
func ExampleProcedure() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	transactor, err := luatx.New(client, luatx.Config{
		Namespace: "bank",
		Keyspace:  luatx.Partitions(16),
		Procedures: []luatx.Procedure{{
			Name: "withdraw",
			Keys: []string{"account"},
			Args: []string{"amount"},
			Source: `
local left = tonumber(redis.call('HGET', account, 'balance') or 0) - amount
if left < 0 then abort('insufficient funds') end
redis.call('HSET', account, 'balance', left)
emit{type = 'withdrawn', source = '/bank', data = {amount = tonumber(amount)}}
return left`,
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	withdraw := func(amount int) {
		var left *redis.Cmd
		_, err := transactor.Transact(ctx, "ann", func(tx *luatx.Tx) error {
			account, err := tx.Key("account")
			if err != nil {
				return err
			}
			left = tx.Call("withdraw", []string{account}, amount)
			return nil
		})
		if aborted, ok := errors.AsType[*luatx.AbortError](err); ok {
			fmt.Println(aborted.Reason)
			return
		}
		fmt.Println(left.Val(), err)
	}
	account, err := transactor.Keyspace().Key("ann", "account")
	if err != nil {
		log.Fatal(err)
	}
	client.HSet(ctx, account, "balance", 100)
	withdraw(30)
	withdraw(80)
	// Output:
	// 70 <nil>
	// insufficient funds
}

// embedded returns a client of a server inside the process, for examples.
func embedded() (client *redis.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}
