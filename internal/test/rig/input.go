package rig

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// Publish adds a message to a stream.
func Publish(t testing.TB, client redis.UniversalClient, key string, attrs message.Attributes) {
	t.Helper()
	p, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: key})
	redistest.Must(t, err)
	for _, err := range p.Send(t.Context(), message.NewRaw([]byte("{}"), attrs, nil)) {
		redistest.Must(t, err)
	}
}

// Input is a stream with a consumer group, read by hand.
type Input struct {
	t      testing.TB
	client redis.UniversalClient
	Stream string
}

// NewInput creates a stream and its consumer group, g.
func NewInput(t testing.TB, client redis.UniversalClient, stream string) Input {
	t.Helper()
	redistest.Must(t, client.XGroupCreateMkStream(t.Context(), stream, "g", "0").Err())
	return Input{t, client, stream}
}

// Deliver adds an entry and reads it as a consumer.
func (in Input) Deliver(consumer string, attrs message.Attributes) *message.Message {
	in.t.Helper()
	ctx := in.t.Context()
	in.client.XAdd(ctx, &redis.XAddArgs{Stream: in.Stream, Values: []any{"id", attrs.ID()}})
	read, err := in.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{in.Stream, ">"}, Count: 1}).Result()
	if err != nil || len(read[0].Messages) != 1 {
		in.t.Fatal(read, err)
	}
	return in.Message(consumer, read[0].Messages[0].ID, attrs)
}

// TakeOver makes a consumer take entries over from others, as luatx does.
func (in Input) TakeOver(consumer string, entries ...string) {
	in.t.Helper()
	claimed, err := in.Member(consumer).Claim(in.t.Context(), 0, entries)
	if err != nil || len(claimed) != len(entries) {
		in.t.Fatalf("claimed entries %v of %v: %v", claimed, entries, err)
	}
}

// Member returns a consumer of the group.
func (in Input) Member(consumer string) *group.Member {
	return &group.Member{Client: in.client, Stream: in.Stream, Group: "g", Consumer: consumer}
}

// Message returns the message of an entry that a consumer owns.
func (in Input) Message(consumer, entry string, attrs message.Attributes) *message.Message {
	source := message.Source{Stream: in.Stream, Group: "g", Consumer: consumer, Entry: entry}
	return message.New(nil, attrs, message.NewAckingFrom(message.AckingConfig{
		Ack:    func() { in.client.XAck(context.Background(), in.Stream, "g", entry) },
		Source: source,
	}))
}

// Pending returns how many entries of the stream its group has not acknowledged.
func (in Input) Pending() int64 {
	in.t.Helper()
	return Pending(in.t, in.client, in.Stream)
}

// Pending returns how many entries of a stream its group g has not acknowledged.
func Pending(t testing.TB, client redis.UniversalClient, stream string) int64 {
	t.Helper()
	p, err := client.XPending(t.Context(), stream, "g").Result()
	redistest.Must(t, err)
	return p.Count
}

// Order returns the attributes of an order of aggregate a.
func Order(id string) message.Attributes {
	return message.Attributes{"id": id, "source": "/shop", "type": "order", "subject": "a"}
}

// EntryOf returns the id of the stream entry that a message came from.
func EntryOf(t testing.TB, msg *message.Message) string {
	t.Helper()
	source, ok := msg.InputSource()
	if !ok {
		t.Fatal("the message has no source")
	}
	return source.Entry
}

// Settled reports whether a message has been acknowledged, nacked or released.
func Settled(msg *message.Message) bool {
	select {
	case <-msg.Settled():
		return true
	default:
		return false
	}
}
