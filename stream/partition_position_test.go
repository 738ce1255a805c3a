package stream_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestPositionsParkMessagesThatFailForGood(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newParted(t, client, 2)
		p.positions = true
		p.publish(t, 10, 0, 5)
		refused := errors.New("no such customer")
		p.consume(t, client, p.config(), func(_ context.Context, id string) error {
			if strings.HasSuffix(id, "3/4") || strings.HasSuffix(id, "4/4") { // the last ones of their aggregates
				return message.Permanent(refused)
			}
			return nil
		})
		redistest.Eventually(t, "all to be acknowledged", func() bool { return p.open(t.Context()) == 0 })
		wrong := strings.Join(p.wrong(t.Context(), 10, 5), ", ")
		if wrong != "a3: 4 of 5: [0 1 2 3], a4: 4 of 5: [0 1 2 3]" {
			t.Errorf("wrong aggregates: %s", wrong)
		}
		var parked []string
		for _, key := range p.keys() {
			for letter, err := range stream.DeadLetters(t.Context(), client, stream.DeadLetterKey(key)) {
				redistest.Must(t, err)
				if letter.Reason != refused.Error() || letter.Stream != key || letter.Values["data"] != "4" {
					t.Errorf("dead letter %+v", letter)
				}
				parked = append(parked, letter.Values["ce_id"].(string))
			}
		}
		if len(parked) != 2 {
			t.Errorf("parked %v, want a3/4 and a4/4", parked)
		}
	})
}

func TestFailedMessageStopsThoseBehindItUnderPositions(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newParted(t, client, 1)
		p.positions = true
		cfg := p.config()
		cfg.MaxDeliveries = 20 // a message that was only stopped must not use them up
		p.publish(t, 10, 0, 10)
		var failures atomic.Int64
		p.consume(t, client, cfg, func(_ context.Context, id string) error {
			if strings.HasPrefix(id, "a2/") && failures.Add(1)%4 != 0 {
				return errors.New("try again")
			}
			return nil
		})
		p.wantApplied(t, 10, 10)
		if n := client.XLen(t.Context(), stream.DeadLetterKey(p.keys()[0])).Val(); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func TestConsumerContinuesAfterItsPositionsWereSetBack(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newParted(t, client, 2)
		p.positions = true
		p.publish(t, 10, 0, 5)
		p.consume(t, client, p.config(), nothing)
		p.wantApplied(t, 10, 5)
		tr, err := luatx.New(client, luatx.Config{Namespace: p.ns, Keyspace: p.keyspace})
		redistest.Must(t, err)
		op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
		redistest.Must(t, err)
		for position, err := range op.InboxPositions(t.Context(), admin.InboxPositionFilter{Source: "orders"}) {
			redistest.Must(t, err)
			_, err := op.Rewind(t.Context(), admin.Rewind{Scope: position.Scope, Source: "orders", Partition: position.Partition, Reason: "test"})
			redistest.Must(t, err)
		}
		p.publish(t, 10, 5, 10)
		p.wantApplied(t, 10, 10)
		for position, err := range op.InboxPositions(t.Context(), admin.InboxPositionFilter{}) {
			if err != nil || position.Offset == "" || position.Generation < 3 {
				t.Errorf("position %+v, %v: want that of an owner after the rewind", position, err)
			}
		}
	})
}

func TestPlainSubscriberUnderPositionsIsAWiringError(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	p := newParted(t, client, 1)
	tr := rig.NewTransactor(t, client)
	engine := message.NewEngine(message.EngineConfig{})
	redistest.Must(t, engine.Router().Use(luatx.Middleware(tr), (&parted{positions: true}).inbox()))
	redistest.Must(t, engine.AddSubscriber("partitioned", nil, p.subscriber(t, p.config())))
	redistest.Must(t, engine.Check())

	plain, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: p.keys()[0], Group: "g"})
	redistest.Must(t, err)
	other := message.NewEngine(message.EngineConfig{})
	redistest.Must(t, other.Router().Use(luatx.Middleware(tr), (&parted{positions: true}).inbox()))
	redistest.Must(t, other.AddSubscriber("plain", nil, plain))
	var unsafe *message.WiringError
	if err := other.Check(); !errors.As(err, &unsafe) {
		t.Errorf("a plain subscriber: %v", err)
	}
}

// TestMessagesOfSeveralHandlersAreHandledOnceUnderPositions has handlers for alternate messages. Each has a position of its own.
func TestMessagesOfSeveralHandlersAreHandledOnceUnderPositions(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(t), redistest.Soon(t)
	p := newParted(t, client, 1)
	pub, err := stream.NewPartitionedPublisher(client, p.keyspace, stream.PublisherConfig{Stream: "orders"})
	redistest.Must(t, err)
	for i := range 30 {
		redistest.Must(t, errors.Join(pub.Send(ctx, message.NewRaw(nil, message.Attributes{
			"id": strconv.Itoa(i), "source": "/t", "type": []string{"a", "b", "c"}[i%3], "subject": "s" + strconv.Itoa(i),
		}, nil))...))
	}
	tr, err := luatx.New(client, luatx.Config{Namespace: p.ns, Keyspace: p.keyspace})
	redistest.Must(t, err)
	var runs atomic.Int64
	engine := message.NewEngine(message.EngineConfig{})
	redistest.Must(t, engine.Router().Use(luatx.Middleware(tr), inbox.Position(inbox.PositionConfig{})))
	for _, kind := range []string{"a", "b", "c"} {
		redistest.Must(t, engine.AddHandler(kind, message.MatchType(kind), message.NewHandler(func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) {
			runs.Add(1)
			return nil, nil
		})))
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.subscriber(t, p.config()).Consume(running, tr, engine) }()
	redistest.Eventually(t, "all to be acknowledged", func() bool { return runs.Load() >= 30 && p.open(ctx) == 0 })
	stop()
	redistest.Must(t, <-done)
	assert.Equal(t, runs.Load(), int64(30), "runs of the handlers")
}
