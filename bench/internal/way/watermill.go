package way

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"
)

// onWatermill is a service on Watermill's router and its Redis Streams. A subscriber handles one message after another, so
// the number of messages in flight is the number of subscribers. They are consumers of one group, each with a handler of
// the router. The deduplicator is that of the router, with marks in Redis. The router publishes what the handler returns,
// and then acknowledges the message.
type onWatermill struct {
	work
	inFlight int
}

// feed adds entries as the publisher writes them. The publisher itself would need a round trip for each.
func (w *onWatermill) feed(ctx context.Context, n int) error {
	if err := w.client.XGroupCreateMkStream(ctx, w.in, group, "0").Err(); err != nil {
		return err
	}
	marshal := redisstream.DefaultMarshallerUnmarshaller{}
	var malformed error
	err := inPipelines(ctx, w.client, n, func(pipe redis.Pipeliner, i int) {
		values, err := marshal.Marshal(w.in, message.NewMessage(orderID(i), message.Payload(input)))
		malformed = errors.Join(malformed, err)
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: w.in, Values: values})
	})
	return errors.Join(malformed, err)
}

func (w *onWatermill) begin(ctx context.Context, failed func(error)) (stop func()) {
	router, err := w.router(failed)
	if err != nil {
		failed(err)
		return func() {}
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := router.Run(ctx); err != nil {
			failed(err)
		}
	})
	return func() {
		_ = router.Close() // waits for the subscribers
		running.Wait()
	}
}

func (w *onWatermill) router(failed func(error)) (*message.Router, error) {
	shared := keepOpen{w.client}
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: shared}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(reporting(failed), (&middleware.Deduplicator{
		KeyFactory: func(msg *message.Message) (string, error) { return msg.UUID, nil },
		Repository: marks{w},
		Timeout:    time.Minute, // of a check; its documented default
	}).Middleware)
	for i := range w.inFlight {
		subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
			Client: shared, ConsumerGroup: group, Consumer: fmt.Sprint("c", i),
		}, watermill.NopLogger{})
		if err != nil {
			return nil, err
		}
		router.AddHandler(fmt.Sprint("place-order-", i), w.in, subscriber, outStream, publisher, w.handle)
	}
	return router, nil
}

func (w *onWatermill) handle(msg *message.Message) ([]*message.Message, error) {
	pipe := w.client.TxPipeline()
	w.business(msg.Context(), pipe)
	if _, err := pipe.Exec(msg.Context()); err != nil {
		return nil, err
	}
	return []*message.Message{message.NewMessage(msg.UUID+"-placed", w.event)}, nil
}

func (w *onWatermill) through(ctx context.Context, n int) (bool, error) {
	return w.all(ctx, n, w.acknowledged, w.entries(outStream))
}

// marks keeps the ids that the deduplicator has seen.
type marks struct{ *onWatermill }

func (m marks) IsDuplicate(ctx context.Context, id string) (bool, error) {
	fresh, err := m.mark(ctx, m.client, id).Result()
	return !fresh, err
}

// reporting reports the errors of a handler, whose messages are delivered again.
func reporting(failed func(error)) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			out, err := next(msg)
			if err != nil && msg.Context().Err() == nil {
				failed(err)
			}
			return out, err
		}
	}
}

// keepOpen is a client that its subscribers cannot close.
type keepOpen struct{ redis.UniversalClient }

func (keepOpen) Close() error { return nil }
