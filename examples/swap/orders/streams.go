package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// runner runs a service on the streams of its partitions. In both modes it publishes events in both ways, as during a swap
// of modes. The unused way costs little.
type runner struct {
	client  redis.UniversalClient
	service Service
	keys    luatx.Keyspace
	orders  []PlaceOrder
	group   sync.WaitGroup
}

// run returns when every order is acknowledged and every event published, or when ctx has ended.
func (r *runner) run(ctx context.Context) error {
	work, stop := context.WithCancel(ctx)
	defer r.group.Wait()
	defer stop()
	if err := r.publishEvents(work); err != nil {
		return err
	}
	if err := r.consume(work); err != nil {
		return err
	}
	if err := r.feed(ctx); err != nil {
		return err
	}
	for ticker := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			ticker.Stop()
			return context.Cause(ctx)
		case <-ticker.C:
			if done, err := r.done(ctx); done || err != nil {
				ticker.Stop()
				return err
			}
		}
	}
}

func (r *runner) subscriber(key, group string) stream.SubscriberConfig {
	return stream.SubscriberConfig{Stream: key, Group: group, BlockTimeout: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
}

// consume handles the input streams, one per partition.
func (r *runner) consume(ctx context.Context) error {
	engine := message.NewEngine(message.EngineConfig{})
	if err := errors.Join(engine.Router().Use(r.service.Middleware), engine.AddHandler("place-order", nil, r.service.Handler)); err != nil {
		return err
	}
	for _, tag := range r.keys.Tags() {
		key := r.keys.TagKey(tag, "orders")
		sub, err := stream.NewSubscriber(r.client, r.subscriber(key, "orders"))
		if err != nil {
			return err
		}
		ch, err := sub.Subscribe(ctx)
		if err != nil {
			return err
		}
		if err := engine.AddRawInput(key, nil, ch); err != nil {
			return err
		}
	}
	r.group.Go(func() { _ = engine.Run(ctx) }) // report finds inputs that are left
	return nil
}

// publishEvents publishes the events of pipeline mode from their streams, and those of scripted mode by a relay.
func (r *runner) publishEvents(ctx context.Context) error {
	publisher, err := stream.NewPublisher(r.client, stream.PublisherConfig{Stream: r.keys.TagKey(r.keys.Tags()[0], "events")})
	if err != nil {
		return err
	}
	for _, tag := range r.keys.Tags() {
		sub, err := stream.NewOutboxSubscriber(r.client, r.subscriber(r.keys.TagKey(tag, "outbox"), ""))
		if err != nil {
			return err
		}
		events, err := sub.Subscribe(ctx)
		if err != nil {
			return err
		}
		done, err := publisher.Publish(ctx, events)
		if err != nil {
			return err
		}
		r.group.Go(func() { <-done })
	}
	events, err := relay.New(r.service.Transactor, relay.Streams(publisher), relay.Config{})
	if err != nil {
		return err
	}
	r.group.Go(func() { _ = events.Run(ctx) }) // report finds events that are left
	return nil
}

// feed adds the orders to the streams of their customers.
func (r *runner) feed(ctx context.Context) error {
	publisher, err := stream.NewPublisher(r.client, stream.PublisherConfig{StreamFor: func(msg *message.RawMessage) (string, error) {
		tag, err := r.keys.Tag(msg.Subject())
		return r.keys.TagKey(tag, "orders"), err
	}})
	if err != nil {
		return err
	}
	var msgs []*message.RawMessage
	for _, order := range r.orders {
		data, err := json.Marshal(order)
		if err != nil {
			return err
		}
		msgs = append(msgs, message.NewRaw(data, message.Attributes{
			message.AttrID: order.Order, message.AttrSource: "/shop", message.AttrType: "place.order", message.AttrSubject: order.Customer,
		}, nil))
	}
	return errors.Join(publisher.Send(ctx, msgs...)...)
}

// done reports whether every order is acknowledged and every event published.
func (r *runner) done(ctx context.Context) (bool, error) {
	read := int64(0)
	for _, tag := range r.keys.Tags() {
		key := r.keys.TagKey(tag, "orders")
		pending, err := r.client.XPending(ctx, key, "orders").Result()
		if err != nil {
			return false, fmt.Errorf("pending of %s: %w", key, err)
		}
		groups, err := r.client.XInfoGroups(ctx, key).Result()
		if err != nil {
			return false, err
		}
		for _, group := range groups { // entries that the group has read
			entries, err := r.client.XRange(ctx, key, "-", group.LastDeliveredID).Result()
			if err != nil {
				return false, err
			}
			read += int64(len(entries)) - pending.Count
		}
	}
	events, err := r.client.XLen(ctx, r.keys.TagKey(r.keys.Tags()[0], "events")).Result()
	return read == int64(len(r.orders)) && events >= orderCount, err
}
