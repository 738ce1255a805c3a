//go:build unix

// Package position_test holds an inbox of positions against members of a partitioned stream that die and stall.
package position_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestMain(m *testing.M) {
	if args, ok := brokertest.Member(); ok {
		fmt.Fprintln(os.Stderr, "the member ended:", memberMain(args))
		os.Exit(1)
	}
	redistest.Main(m)
}

const (
	entries = "entries"
	group   = "ledger"
)

// memberMain is a member of a ledger in a separate process. Its arguments are the namespace and the addresses of Redis.
func memberMain(args []string) error {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: args[1:]})
	defer client.Close() //nolint:errcheck // the process ends
	ledger, err := brokertest.NewLedger(client, args[0])
	if err != nil {
		return err
	}
	sub, err := stream.NewPartitionedSubscriber(client, ledger.Transactor().Keyspace(), stream.PartitionedConfig{
		SubscriberConfig: stream.SubscriberConfig{
			Stream: entries, Group: group, BlockTimeout: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), BatchSize: 20,
			NackBackoff: message.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
		},
		Lease: 500 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	engine, err := ledger.Engine(brokertest.Hooks{Before: brokertest.Mishap}, sub)
	if err != nil {
		return err
	}
	if os.Getpid()%2 == 0 { // in batches
		return sub.Consume(context.Background(), ledger.Transactor(), engine)
	}
	return engine.Run(context.Background())
}

func TestPositionsKeepTheBooksWhileMembersAreKilledAndGroupsAreSetBack(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, client redis.UniversalClient, addrs ...string) {
		t.Helper()
		ledger, err := brokertest.NewLedger(client, redistest.Namespace(t))
		redistest.Must(t, err)
		keyspace := ledger.Transactor().Keyspace()
		publisher, err := stream.NewPartitionedPublisher(client, keyspace, stream.PublisherConfig{Stream: entries})
		redistest.Must(t, err)
		brokertest.KillTest{
			Ledger: ledger, Args: append([]string{ledger.Namespace}, addrs...),
			Publish: func(from, to int) {
				var batch []*message.RawMessage
				for n := from; n < to; n++ {
					for a := range brokertest.Accounts {
						batch = append(batch, brokertest.NewEntry(a, n))
					}
				}
				for _, err := range publisher.Send(t.Context(), batch...) {
					redistest.Must(t, err)
				}
			},
			Forget: func() {
				for _, key := range stream.PartitionKeys(keyspace, entries) {
					redistest.Must(t, client.XGroupSetID(t.Context(), key, group, "0").Err())
				}
			},
		}.Run(t)
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		test(t, server.Client(t), server.Addr())
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.SharedCluster(t)
		test(t, cluster.Client(t), cluster.Addrs()...)
	})
}
