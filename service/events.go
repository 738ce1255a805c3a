package service

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// Runner is a piece that works until ctx ends, such as a *relay.Relay.
type Runner interface {
	Run(ctx context.Context) error
}

// RunFunc is a Runner made of a function.
type RunFunc func(ctx context.Context) error

// Run implements Runner.
func (f RunFunc) Run(ctx context.Context) error { return f(ctx) }

// publisher returns what takes the events: that of Redis Streams, unless another is given.
func (c Config) publisher(client redis.UniversalClient) (relay.Publisher, error) {
	if c.Given.Publisher != nil {
		return c.Given.Publisher, nil
	}
	streams, err := stream.NewPublisher(client, c.Publisher)
	if err != nil {
		return nil, err
	}
	return relay.Streams(streams), nil
}

// relay returns what publishes the events, nil if another process does.
func (c Config) relay(client redis.UniversalClient, t *luatx.Transactor) (Runner, error) {
	switch {
	case c.Given.Relay != nil:
		return c.Given.Relay, nil
	case c.Stack.RelayElsewhere:
		return nil, nil //nolint:nilnil // there is none
	}
	publisher, err := c.publisher(client)
	if err != nil {
		return nil, err
	}
	if c.Mode == Scripted {
		return relay.New(t, publisher, c.Relay)
	}
	return c.forwarders(client, publisher)
}

// forwarders return what publishes the outbox streams of the mode Pipelined.
func (c Config) forwarders(client redis.UniversalClient, publisher relay.Publisher) (Runner, error) {
	var sources []relay.Source
	for _, key := range c.outboxes() {
		own := c.Subscriber.SubscriberConfig
		own.Stream, own.Group, own.Consumer = key, "", ""
		own.MaxDeliveries, own.DeadLetter, own.Unmarshal, own.Codecs = 0, "", nil, nil
		events, err := stream.NewOutboxSubscriber(client, own)
		if err != nil {
			return nil, err
		}
		sources = append(sources, source{events})
	}
	cfg := relay.DriveConfig{
		BatchSize: c.Relay.BatchSize, Concurrency: c.Relay.Concurrency, PauseCap: c.Relay.PauseCap, Timeout: c.Relay.PublishTimeout,
		DrainTimeout: c.Relay.DrainTimeout, Observer: c.Relay.Observer, Logger: c.Relay.Logger,
	}
	return RunFunc(func(ctx context.Context) error {
		errs := make([]error, len(sources))
		var driving sync.WaitGroup
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		for i, s := range sources {
			driving.Go(func() {
				errs[i] = relay.Drive(ctx, s, publisher, cfg)
				stop() // one that fails ends the others
			})
		}
		driving.Wait()
		return errors.Join(errs...)
	}), nil
}

// source makes a relay.Source of a subscriber.
type source struct{ message.Subscriber }

// Source implements relay.Source.
func (s source) Source(ctx context.Context) (<-chan *message.RawMessage, error) {
	return s.Subscribe(ctx)
}

// outboxes are the keys of the outbox streams of the mode Pipelined.
func (c Config) outboxes() []string {
	switch {
	case c.Stack.OutboxStream != "":
		return []string{c.Stack.OutboxStream}
	case c.Partitions > 0:
		return stream.PartitionKeys(c.keyspace(), c.outboxName())
	default:
		return []string{c.outboxName()}
	}
}

func (c Config) outboxName() string { return c.Namespace + "-outbox" }

// withOutbox names the outbox streams of the mode Pipelined, unless Stack does.
func (c Config) withOutbox(client redis.UniversalClient) (Config, error) {
	_, cluster := client.(*redis.ClusterClient)
	switch {
	case c.Stack.OutboxStreamFor != nil && c.Given.Relay == nil && !c.Stack.RelayElsewhere:
		return c, errors.New("service: Config.Stack.OutboxStreamFor is set; set Given.Relay to publish these streams, or Stack.RelayElsewhere")
	case c.Stack.OutboxStreamFor != nil || c.Stack.OutboxStream != "":
		return c, nil
	case c.Partitions == 0 && cluster:
		return c, errors.New("service: mode Pipelined on a cluster needs an outbox stream in each slot; set Config.Partitions")
	case c.Partitions == 0:
		c.Stack.OutboxStream = c.outboxName()
		return c, nil
	}
	aggregate, keyspace, name := c.Transactor.Aggregate, c.keyspace(), c.outboxName()
	c.Stack.OutboxStreamFor = func(input *message.Message) (string, error) {
		id := input.Subject()
		if aggregate != nil {
			var err error
			if id, err = aggregate(input); err != nil {
				return "", fmt.Errorf("service: outbox stream: %w", err)
			}
		}
		tag, err := keyspace.Tag(id)
		return keyspace.TagKey(tag, name), err
	}
	return c, nil
}
