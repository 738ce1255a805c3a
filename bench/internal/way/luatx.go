package way

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

// service is a service on this library: an Engine with a stack, and a relay if its events are to be published.
type service struct {
	work
	tr        *luatx.Transactor
	inFlight  int  // workers, or messages of a batch
	batches   bool // Consume instead of Subscribe
	pipelined bool // the stack of pipeline mode
	publish   bool
	noInline  bool
}

// connect creates the service's Transactor.
func (s *service) connect() (line, error) {
	var err error
	s.tr, err = luatx.New(s.client, luatx.Config{
		Namespace: "bench", Keyspace: keyspace, Logger: quiet,
		OutboxCapacity: 1 << 30, OutboxBytes: 1 << 40, // without a relay, the events of a round stay in the outbox
	})
	return s, err
}

var quiet = slog.New(slog.DiscardHandler)

func (s *service) begin(ctx context.Context, failed func(error)) (stop func()) {
	return background(ctx, func(ctx context.Context, running *sync.WaitGroup) {
		run := func(f func(context.Context) error) {
			running.Go(func() {
				if err := f(ctx); err != nil {
					failed(err)
				}
			})
		}
		if s.publish {
			run(s.relay)
		}
		run(func(ctx context.Context) error { return s.consume(ctx, failed) })
	})
}

func (s *service) relay(ctx context.Context) error {
	publisher, err := stream.NewPublisher(s.client, stream.PublisherConfig{Stream: outStream, Logger: quiet})
	if err != nil {
		return err
	}
	events, err := relay.New(s.tr, relay.Streams(publisher), relay.Config{NoInline: s.noInline, Logger: quiet})
	if err != nil {
		return err
	}
	return events.Run(ctx)
}

func (s *service) consume(ctx context.Context, failed func(error)) error {
	engine, err := s.engine(failed)
	if err != nil {
		return err
	}
	sub, err := stream.NewSubscriber(s.client, stream.SubscriberConfig{Stream: s.in, Group: group, BatchSize: s.inFlight, BlockTimeout: blockFor, Logger: quiet})
	if err != nil {
		return err
	}
	if s.batches {
		return sub.Consume(ctx, s.tr, stream.ProcessFunc(func(ctx context.Context, raw *message.RawMessage) error {
			_, err := engine.Process(ctx, raw)
			if err != nil {
				failed(err)
			}
			return err
		}))
	}
	in, err := sub.Subscribe(ctx)
	if err != nil {
		return err
	}
	if err := engine.AddRawInput("in", nil, in); err != nil {
		return err
	}
	return engine.Run(ctx)
}

func (s *service) engine(failed func(error)) (*message.Engine, error) {
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{
		Concurrency: s.inFlight, Logger: quiet, ErrorHandler: func(_ context.Context, _ *message.Message, err error) { failed(err) },
	}})
	mw, err := stack.Scripted(s.tr, stack.Config{RelayElsewhere: true, Logger: quiet})
	if s.pipelined {
		mw, err = stack.Pipelined(s.client, stack.Config{
			OutboxStream: s.outbox, MarkKey: func(id message.Identity) string { return s.markKey(id.Source + ":" + id.ID) }, Logger: quiet,
		})
	}
	if err != nil {
		return nil, err
	}
	if err := engine.Router().Use(mw); err != nil {
		return nil, err
	}
	return engine, engine.AddHandler("place-order", nil, message.NewHandler(s.handle, message.Named("order")))
}

func (s *service) handle(ctx context.Context, _ *message.TypedMessage[json.RawMessage]) ([]*message.Message, error) {
	s.business(ctx, luatx.CmdableFromContext(ctx, s.client))
	return []*message.Message{message.New(json.RawMessage(s.event), message.Attributes{
		message.AttrType: "placed", message.AttrSource: "/orders",
	}, nil)}, nil
}

// through also checks the outbox: without a relay it must contain all events, and with one none.
func (s *service) through(ctx context.Context, n int) (bool, error) {
	switch {
	case s.pipelined:
		return s.all(ctx, n, s.acknowledged, s.entries(s.outbox))
	case s.publish:
		return s.all(ctx, n, s.acknowledged, s.entries(outStream), s.waiting(0))
	default:
		return s.all(ctx, n, s.acknowledged, s.waiting(n))
	}
}

// waiting returns a check whether the outbox contains a number of events.
func (s *service) waiting(events int) question {
	return func(ctx context.Context, _ int) (bool, error) {
		shard := link.Of(s.tr).Scripts.Shard(keyspace.Slots()[0])
		pending, err := s.client.ZCard(ctx, shard.Key("pending")).Result()
		return pending == int64(events), err
	}
}
