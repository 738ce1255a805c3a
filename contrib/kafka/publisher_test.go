package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

func TestPublisherPassesTheSuite(t *testing.T) {
	t.Parallel()
	for name, structured := range map[string]bool{"binary": false, "structured": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			luatxtest.TestPublisher(t, func(t testing.TB) luatxtest.PublisherTarget {
				t.Helper()
				return target(t, structured)
			})
		})
	}
}

func target(t testing.TB, structured bool) luatxtest.PublisherTarget {
	t.Helper()
	c := newCluster(t, 3, "out")
	redistest.Must(t, c.CreateTopic("tiny", 1, map[string]string{"max.message.bytes": "100"}))
	var box brokertest.Mailbox
	go box.Collect(c.join("out").in)
	target := box.Target(c.publisher(func(cfg *kafka.PublisherConfig) {
		cfg.Structured = structured
		cfg.Topic = func(event *message.RawMessage) (string, error) {
			if box.Refuses(event.ID()) {
				return "tiny", nil
			}
			return "out", nil
		}
	}))
	target.Break = func() func() {
		c.down.Store(true)
		return func() { c.down.Store(false) }
	}
	return target
}

// TestRecordsOfAKeyAreInOnePartitionInOrder tests the records of an event in both modes, and that those with the same key are
// in one partition in order.
func TestRecordsOfAKeyAreInOnePartitionInOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5, "out")
	var events []*message.RawMessage
	for i := range 60 {
		events = append(events, event(strings.Repeat("i", i+1), "destination", "out", "partitionkey", fmt.Sprint("key-", i%7)))
	}
	redistest.Must(t, errors.Join(c.publisher().Publish(t.Context(), events)...))
	last, where := map[string]int{}, map[string]int32{}
	for _, rec := range c.records("out", len(events)) {
		headers := map[string]string{}
		for _, h := range rec.Headers {
			headers[h.Key] = string(h.Value)
		}
		id, key := headers["ce_id"], string(rec.Key)
		if headers["ce_specversion"] != "1.0" || headers["content-type"] != "application/json" || headers["ce_partitionkey"] != key || string(rec.Value) != fmt.Sprintf(`{"id":%q}`, id) {
			t.Errorf("%v %s", headers, rec.Value)
		}
		if at, known := where[key]; known && at != rec.Partition {
			t.Errorf("key %s is in partitions %d and %d", key, at, rec.Partition)
		}
		if where[key] = rec.Partition; len(id) <= last[key] {
			t.Errorf("event %d of %s comes after %d", len(id), key, last[key])
		}
		last[key] = len(id)
	}
	if len(last) != 7 {
		t.Errorf("%d keys", len(last))
	}
}

func TestPublisherClassifiesFailures(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "out")
	p := c.publisher()
	large := event("2", "destination", "out")
	large.Data = make([]byte, 2<<20)
	events := []*message.RawMessage{
		event("0", "destination", "nobody"), event("1"), large, event("3", "destination", "out", "type", ""),
		event("5", "destination", "out", "datacontenttype", "application/cloudevents+json"), event("6", "destination", "out"),
	}
	want := []string{"unavailable unknown_topic", "counted unrouted", "permanent too_large", "permanent malformed", "permanent malformed", ""}
	for i, e := range events {
		err := p.Publish(t.Context(), []*message.RawMessage{e})[0]
		if got := brokertest.Verdict(err); got != want[i] {
			t.Errorf("event %d: %s, want %s: %v", i, got, want[i], err)
		}
	}
	if p.Scope(events[0]) != "nobody" || p.Scope(events[1]) != "" {
		t.Error("the scopes are not the topics")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Publish(ctx, events[5:])[0]; !errors.Is(err, relay.ErrLater) {
		t.Errorf("while the relay stops: %v", err)
	}
}

// TestOutageOfSeveralAttemptsProducesOneRecord tests that an event that the client still has is not passed to it again. An
// outage with five attempts of a relay results in one record.
func TestOutageOfSeveralAttemptsProducesOneRecord(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "out")
	p := c.publisher(func(cfg *kafka.PublisherConfig) { cfg.Timeout = 100 * time.Millisecond })
	one := []*message.RawMessage{event("1", "destination", "out")}
	redistest.Must(t, p.Publish(t.Context(), []*message.RawMessage{event("0", "destination", "out")})[0])
	c.down.Store(true)
	for range 5 {
		if got := brokertest.Verdict(p.Publish(t.Context(), one)[0]); got != "unavailable network" {
			t.Errorf("in the outage: %s", got)
		}
	}
	c.down.Store(false)
	for p.Publish(t.Context(), one)[0] != nil {
		if t.Context().Err() != nil {
			t.Fatal("the outage has no end")
		}
	}
	redistest.Must(t, p.Publish(t.Context(), []*message.RawMessage{event("2", "destination", "out")})[0])
	for i, rec := range c.records("out", 3) {
		if want := fmt.Sprintf(`{"id":"%d"}`, i); string(rec.Value) != want {
			t.Errorf("record %d is %s, want %s", i, rec.Value, want)
		}
	}
}

func TestInvalidClientsAndConfigsAreRejected(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "in")
	for want, client := range map[string]*kgo.Client{
		"idempotent": c.client(kgo.DisableIdempotentWrite()), "transactional": c.client(kgo.TransactionalID("t")), "NewClient": nil,
	} {
		if _, err := kafka.NewPublisher(client, kafka.PublisherConfig{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for want, cfg := range map[string]kafka.PublisherConfig{"Concurrency": {Concurrency: -1}, "Timeout": {Timeout: -1}} {
		if _, err := kafka.NewPublisher(c.client(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for want, cfg := range map[string]kafka.SubscriberConfig{
		"Concurrency": {Concurrency: -1}, "Buffer": {Buffer: -1}, "CommitInterval": {CommitInterval: -1}, "MaxDeliveries": {MaxDeliveries: -1},
		"NackBackoff": {NackBackoff: message.Backoff{Max: -1}},
	} {
		if _, err := kafka.NewSubscriber(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	group := []kgo.Opt{kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in")}
	for want, clients := range map[string][][]kgo.Opt{
		"has no client": nil, "2 clients": {group, group},
	} {
		sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{})
		redistest.Must(t, err)
		for _, opts := range clients {
			c.client(append(sub.Options(), opts...)...)
		}
		if _, err := sub.Subscribe(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{})
	redistest.Must(t, err)
	c.client(append(sub.Options(), group...)...)
	ctx, cancel := context.WithCancel(t.Context())
	in, err := sub.Subscribe(ctx)
	redistest.Must(t, err)
	if _, err := sub.Subscribe(ctx); !errors.Is(err, kafka.ErrSubscribed) {
		t.Errorf("the second time: %v", err)
	}
	cancel()
	if _, open := <-in; open {
		t.Error("a message of an empty topic")
	}
}
