package repair_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/repair"
)

// An event that is in no index is never published.
func ExampleWorker_Fix() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	transactor, err := luatx.New(client, luatx.Config{
		Namespace: "orders", Keyspace: luatx.Partitions(1), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	_, err = transactor.Transact(ctx, "order-17", func(tx *luatx.Tx) error {
		return tx.Emit(luatx.Event{ID: "placed-17", Body: []byte(`{"id":"placed-17"}`)})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range server.Keys() {
		if strings.HasSuffix(key, ":pending") {
			server.Del(key)
		}
	}

	worker, err := repair.New(transactor, repair.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for finding, err := range worker.Check(ctx) {
		fmt.Println(finding, err)
	}
	for finding, err := range worker.Fix(ctx) {
		fmt.Println(finding, err)
	}
	// Output:
	// slot 8192: pending "placed-17" is in no index: to be added <nil>
	// slot 8192: pending "placed-17" is in no index: added <nil>
}
