//go:build unix

package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// lanes is the number of subjects of the ledger's stream, and of the consumers that read it: one for each.
const lanes = 8

func subjectOf(account int) string { return fmt.Sprint("entries.", account%lanes) }

func durableOf(lane int) string { return fmt.Sprint("ledger-", lane) }

// memberMain is a member of a ledger in a separate process. Its arguments are the addresses of Redis and NATS and the namespace.
func memberMain(args []string) error {
	db := redis.NewClient(&redis.Options{Addr: args[0]})
	defer db.Close()
	ledger, err := brokertest.NewLedger(db, args[2])
	if err != nil {
		return err
	}
	nc, err := natsgo.Connect(args[1], natsgo.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	var subs []message.Subscriber
	for lane := range lanes {
		sub, err := nats.NewSubscriber(js, nats.SubscriberConfig{
			Stream: "entries", Durable: durableOf(lane), MaxInFlight: 1, Logger: slog.New(slog.DiscardHandler),
			Consumer:    jetstream.ConsumerConfig{FilterSubject: subjectOf(lane), MaxAckPending: 1, AckWait: 500 * time.Millisecond},
			NackBackoff: message.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
		})
		if err != nil {
			return err
		}
		subs = append(subs, sub)
	}
	engine, err := ledger.Engine(brokertest.Hooks{Before: brokertest.Mishap}, subs...)
	if err != nil {
		return err
	}
	return engine.Run(context.Background())
}

func TestPositionsKeepTheBooksWhileMembersAreKilledAndConsumersAreDeleted(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	b := newBroker(t)
	b.stream("entries")
	ledger, err := brokertest.NewLedger(server.Client(t), redistest.Namespace(t))
	redistest.Must(t, err)
	brokertest.KillTest{
		Ledger: ledger, Args: []string{server.Addr(), b.srv.ClientURL(), ledger.Namespace},
		Publish: func(from, to int) {
			var acks []jetstream.PubAckFuture
			for n := from; n < to; n++ {
				for a := range brokertest.Accounts {
					ack, err := b.js.PublishMsgAsync(&natsgo.Msg{Subject: subjectOf(a), Data: fmt.Appendf(nil, `{"Number":%d}`, n), Header: natsgo.Header{
						"ce-specversion": {"1.0"}, "ce-id": {fmt.Sprintf("%d/%d", a, n)}, "ce-source": {"/test"}, "ce-type": {"entry"},
						"ce-subject": {brokertest.Account(a)},
					}})
					redistest.Must(t, err)
					acks = append(acks, ack)
				}
			}
			for _, ack := range acks {
				select {
				case <-ack.Ok():
				case err := <-ack.Err():
					t.Fatal(err)
				}
			}
		},
		Forget: func() {
			for lane := range lanes {
				if err := b.js.DeleteConsumer(t.Context(), "entries", durableOf(lane)); !errors.Is(err, jetstream.ErrConsumerNotFound) {
					redistest.Must(t, err)
				}
			}
		},
	}.Run(t)
}
