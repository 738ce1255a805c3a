package nats_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// TestEveryDeliveryOfAMessageHasTheSameIdentity tests that every delivery of a message without an identity gets the same one,
// and that no other message gets it, not even one in a stream that was created again.
func TestEveryDeliveryOfAMessageHasTheSameIdentity(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	b.put("in.x", "a", "b")
	in, end := b.subscribe("in", func(c *nats.SubscriberConfig) { c.MaxInFlight = 1 })
	first := next(t, in)
	first.Nack(errors.New("not yet"))
	again := next(t, in)
	for first.ID() != again.ID() && string(again.Data) != "a" { // the other message may come between
		again.Ack()
		again = next(t, in)
	}
	if again.ID() != first.ID() || again.Source() != "nats://in" || string(again.Data) != "a" {
		t.Errorf("%v %q came again as %v %q", first.Attributes, first.Data, again.Attributes, again.Data)
	}
	if !strings.HasPrefix(first.ID(), "1-") {
		t.Errorf("the id is %q", first.ID())
	}
	again.Ack()
	end()
	redistest.Must(t, b.js.DeleteStream(t.Context(), "in"))
	b.stream("in")
	b.put("in.x", "c")
	in, _ = b.subscribe("in")
	if other := next(t, in); other.ID() == first.ID() {
		t.Errorf("another message has the id %q too", other.ID())
	}
}

func TestSubscriberAcksRetriesOrDeadLettersMessages(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	b.stream("dead")
	dead := b.publisher(func(c *nats.PublisherConfig) {
		c.Subject = func(*message.RawMessage) (string, error) { return "dead.letters", nil }
	})
	_, err := b.js.PublishMsg(t.Context(), &natsgo.Msg{Subject: "in.x", Header: natsgo.Header{"ce-specversion": {"1.0"}}, Data: []byte("malformed")})
	redistest.Must(t, err)
	b.put("in.x", "good", "bad", "tired")
	in, _ := b.subscribe("in", func(c *nats.SubscriberConfig) { c.DeadLetter, c.MaxDeliveries = dead, 3 })
	times := map[string]int{}
	for range 5 { // good, bad, and tired three times
		msg := next(t, in)
		times[string(msg.Data)]++
		switch string(msg.Data) {
		case "good":
			msg.Ack()
		case "bad":
			msg.Nack(message.Permanent(errors.New("never")))
		default:
			msg.Nack(message.RetryAfter(errors.New("later"), time.Millisecond))
		}
	}
	if fmt.Sprint(times) != "map[bad:1 good:1 tired:3]" {
		t.Errorf("deliveries %v", times)
	}
	redistest.Eventually(t, "nothing to be left", func() bool {
		unacked, waiting := b.pending("in")
		return unacked == 0 && waiting == 0
	})
	letters, _ := b.subscribe("dead")
	reasons := map[string]string{}
	for range 3 {
		msg := next(t, letters)
		reasons[string(msg.Data)], _ = msg.Attributes[nats.AttrReason].(string)
		msg.Ack()
	}
	if reasons["bad"] != "never" || reasons["tired"] != "later" || !strings.Contains(reasons["malformed"], "decode") {
		t.Errorf("dead letters %v", reasons)
	}
}

func TestMessageIsNotTerminatedBeforeItsDeadLetterIsPublished(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	b.put("in.x", "bad")
	in, _ := b.subscribe("in", func(c *nats.SubscriberConfig) { c.DeadLetter = b.publisher() }) // without a subject
	for range 2 {
		next(t, in).Nack(message.Permanent(errors.New("never")))
	}
	if unacked, _ := b.pending("in"); unacked != 1 {
		t.Errorf("%d unacked", unacked)
	}
}

// TestMessagesThatNoHandlerHasTakenGoBackAtTheEnd tests that a subscription that ends returns them to the stream, even if it was
// their last delivery.
func TestMessagesThatNoHandlerHasTakenGoBackAtTheEnd(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	b.put("in.x", "a", "b")
	once := func(c *nats.SubscriberConfig) { c.MaxDeliveries = 1 }
	in, end := b.subscribe("in", once)
	redistest.Eventually(t, "both messages to be read", func() bool { return len(in) == 2 })
	end()
	in, _ = b.subscribe("in", once)
	for range 2 {
		next(t, in).Ack()
	}
}

// TestHeartbeatKeepsTheMessageOfASlowHandler tests that a slow handler keeps its message, and that it loses the message without
// progress signals.
func TestHeartbeatKeepsTheMessageOfASlowHandler(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for name, silent := range map[string]bool{"beats": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.stream(name)
			b.put(name+".x", "1", "2", "3", "4", "5")
			in, _ := b.subscribe(name, func(c *nats.SubscriberConfig) {
				c.MaxInFlight, c.NoHeartbeat, c.Consumer = 7, silent, jetstream.ConsumerConfig{AckWait: 200 * time.Millisecond}
			})
			held := []*message.RawMessage{next(t, in), next(t, in), next(t, in), next(t, in), next(t, in)}
			info := func() *jetstream.ConsumerInfo {
				c, err := b.js.Consumer(t.Context(), name, "service")
				redistest.Must(t, err)
				return c.CachedInfo()
			}
			if silent {
				next(t, in)
				return
			}
			over := time.Now().Add(700 * time.Millisecond)
			redistest.Eventually(t, "time to pass", func() bool { return time.Now().After(over) })
			if i := info(); i.NumRedelivered != 0 || i.Delivered.Consumer != 5 || len(in) != 0 {
				t.Errorf("%d delivered, %d again, %d more given out", i.Delivered.Consumer, i.NumRedelivered, len(in))
			}
			for _, msg := range held {
				msg.Ack()
			}
		})
	}
}

// TestStopReturnsUnreceivedMessagesAndAllowsLateAcks tests that messages that were not received are returned at once, and that
// those being handled can be acked after the end.
func TestStopReturnsUnreceivedMessagesAndAllowsLateAcks(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	for i := range 10 {
		b.put("in.x", fmt.Sprint(i))
	}
	in, end := b.subscribe("in", func(c *nats.SubscriberConfig) { c.MaxInFlight = 5 })
	working := next(t, in)
	redistest.Eventually(t, "the channel to be full", func() bool { return len(in) == 4 })
	if unacked, waiting := b.pending("in"); unacked != 5 || waiting != 5 {
		t.Errorf("%d are in flight, %d wait, want 5 each", unacked, waiting)
	}
	end()
	working.Ack()
	seen := map[string]bool{string(working.Data): true}
	in, _ = b.subscribe("in")
	for range 9 {
		msg := next(t, in)
		if seen[string(msg.Data)] {
			t.Errorf("%s came again", msg.Data)
		}
		seen[string(msg.Data)] = true
		msg.Ack()
	}
	redistest.Eventually(t, "all to be acked", func() bool {
		unacked, waiting := b.pending("in")
		return unacked == 0 && waiting == 0 && len(seen) == 10
	})
}

func TestSubscriptionSurvivesServerRestartsAndALostConsumer(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	in, _ := b.subscribe("in")
	for round := range 3 {
		b.put("in.x", fmt.Sprint(round))
		msg := next(t, in)
		if string(msg.Data) != fmt.Sprint(round) {
			t.Fatalf("%s came in round %d", msg.Data, round)
		}
		if round == 1 {
			b.restart()
		}
		msg.Ack() // on the restarted server
		redistest.Eventually(t, "the ack", func() bool {
			unacked, _ := b.pending("in")
			return unacked == 0
		})
		if round == 0 {
			b.restart()
		}
	}
	redistest.Must(t, b.js.DeleteConsumer(t.Context(), "in", "service"))
	for round := range 3 { // deleted and created again
		msg := next(t, in)
		if string(msg.Data) != fmt.Sprint(round) {
			t.Errorf("%s came first after the consumer was lost", msg.Data)
		}
		msg.Ack()
	}
}

func TestInvalidConfigsAreRejected(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stream("in")
	for want, cfg := range map[string]nats.SubscriberConfig{
		"Stream": {Durable: "d"}, "Durable": {Stream: "in"}, "MaxInFlight": {Stream: "in", Durable: "d", MaxInFlight: -1},
		"MaxDeliveries": {Stream: "in", Durable: "d", MaxDeliveries: -1}, "NackBackoff": {Stream: "in", Durable: "d", NackBackoff: message.Backoff{Base: -1}},
	} {
		if _, err := nats.NewSubscriber(b.js, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for want, cfg := range map[string]nats.PublisherConfig{"Concurrency": {Concurrency: -1}, "AckTimeout": {AckTimeout: -1}} {
		if _, err := nats.NewPublisher(b.js, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	_, err := b.js.CreateConsumer(t.Context(), "in", jetstream.ConsumerConfig{Durable: "lax", AckPolicy: jetstream.AckNonePolicy})
	redistest.Must(t, err)
	for want, durable := range map[string]string{"explicit": "lax", "stream not found": "other"} {
		cfg := nats.SubscriberConfig{Stream: "in", Durable: durable, Logger: slog.New(slog.DiscardHandler)}
		if durable == "other" {
			cfg.Stream = "gone"
		}
		sub, err := nats.NewSubscriber(b.js, cfg)
		redistest.Must(t, err)
		if _, err = sub.Subscribe(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
