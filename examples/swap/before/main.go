// Command swap runs a service over a hundred orders, some of which are delivered twice, and prints the results. The
// programs before and after differ in one line. Without --redis they run on an embedded server.
package main

import (
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/examples/swap/orders"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

func main() { os.Exit(orders.Main(os.Args[1:], os.Stdout, os.Stderr, service)) }

// service returns the service. orders.Main runs it on its streams.
func service(client redis.UniversalClient, namespace string) (orders.Service, error) {
	keyspace := luatx.Partitions(4).WithPrefix(namespace)
	transactor, err := luatx.New(client, luatx.Config{Namespace: namespace, Keyspace: keyspace})
	if err != nil {
		return orders.Service{}, err
	}
	cfg := stack.Config{
		MarkKey: func(id message.Identity) string { return namespace + ":inbox:" + id.Source + ":" + id.ID },
		OutboxStreamFor: func(input *message.Message) (string, error) {
			tag, err := keyspace.Tag(input.Subject())
			return keyspace.TagKey(tag, "outbox"), err
		},
		Overlap: client,
	}
	mw, err := stack.Pipelined(client, cfg)
	if err != nil {
		return orders.Service{}, err
	}
	return orders.Service{
		Transactor: transactor,
		Middleware: mw,
		Handler:    orders.NewPlaceOrder(orders.NewRedisBook(client, keyspace)),
	}, nil
}
