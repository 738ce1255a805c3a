//go:build unix

package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

const ledgerTopic = "entries"

// memberMain is a member of a ledger's group in a separate process. Its arguments are the addresses of Redis and Kafka and the
// namespace.
func memberMain(args []string) error {
	db := redis.NewClient(&redis.Options{Addr: args[0]})
	defer db.Close()
	ledger, err := brokertest.NewLedger(db, args[2])
	if err != nil {
		return err
	}
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		NackBackoff: message.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(sub.Options(), kgo.SeedBrokers(args[1]), kgo.ConsumerGroup("ledger"), kgo.ConsumeTopics(ledgerTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(500*time.Millisecond), kgo.HeartbeatInterval(50*time.Millisecond),
		kgo.RebalanceTimeout(5*time.Second), // a member that is killed while its group rebalances stays in it for as long
		kgo.FetchMaxWait(100*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer client.Close()
	engine, err := ledger.Engine(brokertest.Hooks{Before: brokertest.Mishap}, sub)
	if err != nil {
		return err
	}
	return engine.Run(context.Background())
}

func TestPositionsKeepTheBooksWhileMembersAreKilledAndOffsetsAreDeleted(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c := newCluster(t, 8, ledgerTopic)
	ledger, err := brokertest.NewLedger(server.Client(t), redistest.Namespace(t))
	redistest.Must(t, err)
	producer := c.client()
	brokertest.KillTest{
		Ledger: ledger, Args: []string{server.Addr(), c.ListenAddrs()[0], ledger.Namespace},
		Publish: func(from, to int) {
			var records []*kgo.Record
			for n := from; n < to; n++ {
				for a := range brokertest.Accounts {
					records = append(records, &kgo.Record{Topic: ledgerTopic, Key: []byte(brokertest.Account(a)), Value: fmt.Appendf(nil, `{"Number":%d}`, n)})
				}
			}
			redistest.Must(t, producer.ProduceSync(t.Context(), records...).FirstErr())
		},
		Forget: func() { c.forget("ledger") },
	}.Run(t)
}

// forget deletes a consumer group with its offsets, once its members have left.
func (c *cluster) forget(group string) {
	c.t.Helper()
	client := c.client()
	redistest.Eventually(c.t, "the group to be deleted", func() bool {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{group}
		resp, err := req.RequestWith(c.t.Context(), client)
		if err != nil {
			return false
		}
		err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
		if err != nil && !errors.Is(err, kerr.NonEmptyGroup) {
			c.t.Fatal(err)
		}
		return err == nil
	})
}
