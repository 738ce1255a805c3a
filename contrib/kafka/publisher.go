package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

const (
	defaultTimeout     = 5 * time.Second
	defaultConcurrency = 1000
)

// PublisherConfig configures a Publisher. The zero value is usable.
type PublisherConfig struct {
	// Topic returns the topic of an event. Defaults to its destination.
	Topic func(*message.RawMessage) (string, error)
	// Key returns the key of an event's record. Records with the same key go to one partition, one after the other. An empty key
	// allows any partition. Defaults to the partition key.
	Key func(*message.RawMessage) string
	// Structured encodes the whole event as JSON in the value. Defaults to binary mode, with attributes in headers.
	Structured bool
	// Concurrency is the maximum number of events of a batch in flight. Defaults to 1000.
	Concurrency int
	// Timeout is how long to wait for a record's acknowledgement. After that, the topic counts as unavailable. Defaults to 5 s.
	Timeout time.Duration
}

// Publisher publishes events to topics. It implements relay.Publisher and relay.Scoped; its scopes are the topics. An event
// counts as sent when all in-sync replicas have it.
type Publisher struct {
	relay.Publisher
	client *kgo.Client
	cfg    PublisherConfig

	mu     sync.Mutex
	flying map[identity]*flight
}

// identity identifies an event in a topic.
type identity struct{ topic, source, id string }

// flight is a record that the client still has, so that it may still arrive.
type flight struct {
	done chan struct{} // closed when err is set
	err  error
}

var _ relay.Scoped = (*Publisher)(nil)

// NewPublisher returns a Publisher. It does no I/O and never closes the client, which others may use, too. It returns an error if
// the client's producer is not idempotent or is transactional.
func NewPublisher(client *kgo.Client, cfg PublisherConfig) (*Publisher, error) {
	switch {
	case client == nil:
		return nil, errors.New("kafka: NewPublisher: client is nil; create one with kgo.NewClient")
	case client.OptValue(kgo.DisableIdempotentWrite) == true:
		return nil, errors.New("kafka: the client's producer is not idempotent, so that a retry may store a record twice; leave out kgo.DisableIdempotentWrite")
	case client.OptValue(kgo.TransactionalID) != "":
		return nil, errors.New("kafka: the client's producer is transactional; leave out kgo.TransactionalID")
	case cfg.Concurrency < 0:
		return nil, fmt.Errorf("kafka: PublisherConfig.Concurrency is %d; use a number of events, or 0 for %d", cfg.Concurrency, defaultConcurrency)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("kafka: PublisherConfig.Timeout is %v; use 0 for %v", cfg.Timeout, defaultTimeout)
	}
	if cfg.Topic == nil {
		cfg.Topic = destination
	}
	if cfg.Key == nil {
		cfg.Key = (*message.RawMessage).PartitionKey
	}
	cfg.Concurrency = cmp.Or(cfg.Concurrency, defaultConcurrency)
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	p := &Publisher{client: client, cfg: cfg, flying: make(map[identity]*flight)}
	p.Publisher = relay.Func(p.publish, relay.FuncConfig{Concurrency: cfg.Concurrency, Key: cfg.Key})
	return p, nil
}

// Scope implements relay.Scoped. It returns the topic.
func (p *Publisher) Scope(event *message.RawMessage) string {
	topic, err := p.cfg.Topic(event)
	if err != nil {
		return ""
	}
	return topic
}

var errNoTopic = errors.New("kafka: the event has no destination; set one, or PublisherConfig.Topic")

func destination(event *message.RawMessage) (string, error) {
	if topic := event.Destination(); topic != "" {
		return topic, nil
	}
	return "", relay.Classify("unrouted", errNoTopic)
}

func (p *Publisher) publish(ctx context.Context, event *message.RawMessage) error {
	topic, err := p.cfg.Topic(event)
	if err != nil {
		return err
	}
	headers, value, err := encode(event, p.cfg.Structured)
	if err != nil {
		return message.Permanent(relay.Classify("malformed", err))
	}
	rec := &kgo.Record{Topic: topic, Headers: headers, Value: value}
	if key := p.cfg.Key(event); key != "" {
		rec.Key = []byte(key)
	}
	bounded, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	f := p.send(bounded, identity{topic, event.Source(), event.ID()}, rec)
	select {
	case <-f.done:
		err = f.err
	case <-bounded.Done():
		err = bounded.Err()
	}
	if err == nil {
		return nil
	}
	return judge(ctx, fmt.Errorf("kafka: produce to %q: %w", topic, err))
}

// send passes a record to the client, unless the client still has it from an earlier attempt. An idempotent producer cannot take
// back a record that it has sent, and retries until it knows the outcome.
func (p *Publisher) send(ctx context.Context, id identity, rec *kgo.Record) *flight {
	p.mu.Lock()
	f := p.flying[id]
	if f != nil {
		p.mu.Unlock()
		return f
	}
	f = &flight{done: make(chan struct{})}
	p.flying[id] = f
	p.mu.Unlock()
	p.client.Produce(ctx, rec, func(_ *kgo.Record, err error) {
		p.mu.Lock()
		delete(p.flying, id)
		p.mu.Unlock()
		f.err = err
		close(f.done)
	})
	return f
}

// judge converts an error of a record into a result for the relay.
func judge(ctx context.Context, err error) error {
	broker, answered := errors.AsType[*kerr.Error](err)
	class := "network"
	if answered {
		class = strings.ToLower(broker.Message)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return relay.Later(err, 0) // the relay stops
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return message.Permanent(relay.Classify("too_large", err))
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return relay.Unavailable(relay.Classify("unknown_topic", err))
	case !answered, broker.Retriable: // timeouts, the network, a closed client, a partition without its replicas
		return relay.Unavailable(relay.Classify(class, err))
	case errors.Is(err, kerr.OutOfOrderSequenceNumber), errors.Is(err, kerr.UnknownProducerID),
		errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ProducerFenced):
		return relay.Unavailable(relay.Classify(class, err)) // concerns the producer, not an event
	}
	return relay.Classify(class, err)
}
