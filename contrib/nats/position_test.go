package nats_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// inOrder configures a Subscriber that keeps the order.
func inOrder(c *nats.SubscriberConfig) { c.MaxInFlight, c.Consumer.MaxAckPending = 1, 1 }

func TestPositionNamesStreamFilterSequenceAndTheStreamsCreation(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	created := b.stream("in").CachedInfo().Created
	b.put("in.x", "0")
	b.put("in.y", "1")
	b.put("in.x", "2")
	in, _ := b.subscribe("in", inOrder, func(c *nats.SubscriberConfig) { c.Consumer.FilterSubject = "in.x" })
	want := message.Position{Source: "nats://in", Partition: "in.x", Epoch: created.UTC().Format(time.RFC3339Nano)}
	for _, n := range []int{1, 3} {
		msg := next(t, in)
		at, _ := msg.Position()
		if at.Tenure == nil || !at.Tenure.Shared || want.Tenure != nil && at.Tenure != want.Tenure {
			t.Errorf("the tenure of %s is %+v", msg.Data, at.Tenure)
		}
		want.Offset, want.Tenure = fmt.Sprintf("%020d", n), at.Tenure
		if at != want {
			t.Errorf("%s has the position %+v, want %+v", msg.Data, at, want)
		}
		msg.Ack()
	}
	without, _ := b.subscribe("in", func(c *nats.SubscriberConfig) { c.Durable = "other" })
	if at, ok := next(t, without).Position(); ok {
		t.Errorf("a message of a consumer that does not keep the order has the position %+v", at)
	}
}

func TestOrderHoldsAcrossNacksAndSubscribers(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	for i := range 20 {
		b.put("in.x", fmt.Sprint(i))
	}
	one, _ := b.subscribe("in", inOrder)
	two, _ := b.subscribe("in", inOrder)
	for i, nacked := 0, false; i < 20; {
		var msg *message.RawMessage
		select {
		case msg = <-one:
		case msg = <-two:
		case <-time.After(time.Minute):
			t.Fatal("no message came")
		}
		if string(msg.Data) != fmt.Sprint(i) {
			t.Fatalf("%s came, want %d", msg.Data, i)
		}
		if nacked = !nacked; nacked {
			msg.Nack(errors.New("not yet"))
			continue
		}
		msg.Ack()
		i++
	}
}

func TestRecreatedStreamHasANewEpoch(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	b.put("in.x", "0")
	in, _ := b.subscribe("in", inOrder)
	msg := next(t, in)
	first, _ := msg.Position()
	msg.Ack()
	redistest.Must(t, b.js.DeleteStream(t.Context(), "in"))
	b.stream("in")
	b.put("in.x", "0")
	msg = next(t, in) // of the same subscription, which creates the consumer again
	second, _ := msg.Position()
	if second.Offset != first.Offset || second.Source != first.Source || second.Epoch == first.Epoch || second.Epoch == "" {
		t.Errorf("the position is %+v in the first stream and %+v in the second", first, second)
	}
	msg.Ack()
}

func TestOrderedNamesTheSettingThatLosesTheOrder(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for want, change := range map[string]func(c *nats.SubscriberConfig){
		"":                                 func(*nats.SubscriberConfig) {},
		"SubscriberConfig.MaxInFlight is":  func(c *nats.SubscriberConfig) { c.MaxInFlight = 0 },
		"SubscriberConfig.MaxDeliveries":   func(c *nats.SubscriberConfig) { c.MaxDeliveries = 3 },
		"Consumer.MaxAckPending is 0":      func(c *nats.SubscriberConfig) { c.Consumer.MaxAckPending = 0 },
		"Consumer.MaxDeliver is 7":         func(c *nats.SubscriberConfig) { c.Consumer.MaxDeliver = 7 },
		"Consumer.DeliverPolicy is new":    func(c *nats.SubscriberConfig) { c.Consumer.DeliverPolicy = jetstream.DeliverNewPolicy },
		"DeliverPolicy is last and skips":  func(c *nats.SubscriberConfig) { c.Consumer.DeliverPolicy = jetstream.DeliverLastPolicy },
		"use 1, and Consumer.MaxAckPendin": func(c *nats.SubscriberConfig) { c.MaxInFlight, c.Consumer.MaxAckPending = 100, 0 },
	} {
		cfg := nats.SubscriberConfig{Stream: "in", Durable: "service"}
		inOrder(&cfg)
		change(&cfg)
		sub, err := nats.NewSubscriber(b.js, cfg)
		redistest.Must(t, err)
		if err := sub.Ordered(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Ordered returned %v, want %q", err, want)
		}
	}
}

func TestExistingConsumerThatLosesTheOrderFailsAtSubscribe(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	_, err := b.js.CreateConsumer(t.Context(), "in", jetstream.ConsumerConfig{Durable: "service", AckPolicy: jetstream.AckExplicitPolicy})
	redistest.Must(t, err)
	cfg := nats.SubscriberConfig{Stream: "in", Durable: "service", Logger: slog.New(slog.DiscardHandler)}
	inOrder(&cfg)
	sub, err := nats.NewSubscriber(b.js, cfg)
	redistest.Must(t, err)
	if _, err := sub.Subscribe(t.Context()); err == nil || !strings.Contains(err.Error(), "MaxAckPending is 1000") {
		t.Errorf("Subscribe returned %v", err)
	}
}
