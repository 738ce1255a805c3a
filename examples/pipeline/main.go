// Command pipeline is a service between two brokers. Orders come from Kafka, accounts are in Redis, and events about
// booked orders go to NATS. A third of the orders is in Kafka twice; each order is booked once and has one event.
//
//	go run ./examples/pipeline
//
// It runs on a Kafka, a NATS and a Redis inside the process, or on REDIS_ADDRS=host:port, and prints
//
//	133 records in Kafka, of 100 orders
//	100 orders booked in Redis, 0 of them twice
//	100 events in NATS
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/examples/internal/local"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
)

const orders, customers = 100, 7

type order struct{ ID string }

func main() { os.Exit(local.Main("pipeline", run)) }

func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	db, err := local.Open("pipeline", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	dir := os.TempDir() + "/" + db.Namespace
	defer func() { _ = os.RemoveAll(dir) }()
	broker, err1 := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "orders"))
	srv, err2 := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	t, err3 := luatx.New(db.Client, luatx.Config{Namespace: db.Namespace, Keyspace: luatx.Partitions(16).WithPrefix(db.Namespace)})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	defer broker.Close()
	srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	conn, err := natsgo.Connect("", natsgo.InProcessServer(srv))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err1 := jetstream.New(conn)
	stream, err2 := js.CreateStream(ctx, jetstream.StreamConfig{Name: "accounts", Subjects: []string{"accounts.>"}})
	told, err3 := conn.SubscribeSync("accounts.>")
	if err := errors.Join(err1, err2, err3, place(ctx, out, broker.ListenAddrs())); err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- serve(serving, t, db, broker.ListenAddrs(), js) }()
	for range orders {
		_, err = told.NextMsgWithContext(ctx)
	}
	stop()
	return errors.Join(err, <-ended, report(ctx, out, t, db, stream))
}

// place writes the orders to Kafka, and the first third of them again.
func place(ctx context.Context, out io.Writer, addrs []string) error {
	client, err1 := kgo.NewClient(kgo.SeedBrokers(addrs...))
	shop, err2 := kafka.NewPublisher(client, kafka.PublisherConfig{})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	defer client.Close()
	var all []*message.RawMessage
	for i := range orders {
		attrs := message.Attributes{"id": fmt.Sprint("order-", i), "source": "/shop", "type": "order", "subject": fmt.Sprint("customer-", i%customers), "destination": "orders"}
		all = append(all, message.NewRaw(fmt.Appendf(nil, `{"ID":"order-%d"}`, i), attrs, nil))
	}
	fmt.Fprintf(out, "%d records in Kafka, of %d orders\n", orders+orders/3, orders)
	return errors.Join(append(shop.Publish(ctx, all), shop.Publish(ctx, all[:orders/3])...)...)
}

// serve runs the service: Kafka delivers to the handler, one script commits its writes and event, and a relay publishes to
// NATS.
func serve(ctx context.Context, t *luatx.Transactor, db *local.Redis, kafkaAddrs []string, js jetstream.JetStream) error {
	input, err1 := kafka.NewSubscriber(kafka.SubscriberConfig{})
	output, err2 := nats.NewPublisher(js, nats.PublisherConfig{})
	once, err3 := stack.Scripted(t, stack.Config{})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	events, err1 := relay.New(t, output, relay.Config{})
	client, err2 := kgo.NewClient(append(input.Options(), kgo.SeedBrokers(kafkaAddrs...), kgo.ConsumerGroup("accounts"), kgo.ConsumeTopics("orders"))...)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	defer client.Close()
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Concurrency: 4}})
	book := message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[order]) ([]*message.Message, error) {
		account, err := t.Keyspace().Key(msg.Subject(), "account")
		write := luatx.CmdableFromContext(ctx, db.Client).HIncrBy(ctx, account, msg.Data.ID, 1)
		out := message.New(msg.Data, message.Attributes{"type": "order.booked", "source": "/accounts", "destination": "accounts.booked"}, nil)
		return []*message.Message{out}, errors.Join(err, luatx.Queued(write))
	})
	if err := errors.Join(engine.Router().Use(once), engine.AddHandler("book", nil, book), engine.AddSubscriber("orders", nil, input)); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- events.Run(ctx) }()
	return errors.Join(engine.Run(ctx), <-ended)
}

func report(ctx context.Context, out io.Writer, t *luatx.Transactor, db *local.Redis, stream jetstream.Stream) error {
	entered, twice := 0, 0
	for i := range customers {
		account, _ := t.Keyspace().Key(fmt.Sprint("customer-", i), "account")
		for _, n := range db.Client.HVals(ctx, account).Val() {
			if entered++; n != "1" {
				twice++
			}
		}
	}
	info, err := stream.Info(ctx)
	if err == nil {
		fmt.Fprintf(out, "%d orders booked in Redis, %d of them twice\n%d events in NATS\n", entered, twice, info.State.Msgs)
	}
	return err
}
