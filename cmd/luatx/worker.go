package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/cmd/luatx/internal/shop"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

// workerCommand is the command with which the demo starts its workers.
const workerCommand = "demo-worker"

// The timing of the workers. Others take over the messages of a killed worker in little more than a second, and its events after the
// lease, which must exceed the duration of a batch on a busy machine.
const (
	inFlight      = 4 // messages per stream
	blockTimeout  = 500 * time.Millisecond
	claimInterval = 250 * time.Millisecond
	minIdleTime   = 1 * time.Second // must exceed the duration of a handler
	lease         = 3 * time.Second
	stopTimeout   = 5 * time.Second
	attempts      = 100 // to publish an event; kills of relays must not park it
)

// workerConfig is the standard input of a worker. The end of the input tells the worker to stop.
type workerConfig struct {
	Server    server        `json:"server"`
	Namespace string        `json:"namespace"`
	Mode      shop.Mode     `json:"mode"`
	Work      time.Duration `json:"work_ns"`
}

// note is a line on a worker's standard output.
type note struct {
	Ready      bool  `json:"ready,omitempty"`   // the worker reads every stream
	Busy       bool  `json:"busy,omitempty"`    // the worker handles an invoice
	TookMicros int64 `json:"took_us,omitempty"` // from the receipt of an invoice to its acknowledgement
}

// work runs the worker's process.
func work(std standard) int {
	signal.Ignore(os.Interrupt) // the terminal sends it to all processes, but the parent decides
	log := slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	in := json.NewDecoder(std.in)
	var cfg workerConfig
	if err := in.Decode(&cfg); err != nil {
		log.Error("configuration not read", "error", err)
		return statusUsage
	}
	go func() { // ends when the parent or the process ends
		_, _ = io.Copy(io.Discard, std.in)
		stop()
		<-time.After(2 * stopTimeout)
		log.Error("worker shutdown timed out")
		os.Exit(statusInexact)
	}()
	w := worker{cfg: cfg, keys: newLayout(cfg.Namespace), client: cfg.Server.connect(), log: log, out: &notes{out: json.NewEncoder(std.out)}}
	defer func() { _ = w.client.Close() }() // the client is not used again
	if err := w.run(ctx); err != nil {
		log.Error("worker failed", "error", err)
		return statusInexact
	}
	return statusFine
}

type worker struct {
	cfg    workerConfig
	keys   layout
	client redis.UniversalClient
	log    *slog.Logger
	out    *notes
}

// run handles messages until ctx ends.
func (w worker) run(ctx context.Context) error {
	cfg := w.keys.config()
	cfg.Logger = w.log
	transactor, err := luatx.New(w.client, cfg)
	if err != nil {
		return err
	}
	mw, err := w.stack(transactor)
	if err != nil {
		return err
	}
	engine, err := w.engine(mw)
	if err != nil {
		return err
	}
	if err := w.subscribe(ctx, engine); err != nil {
		return err
	}

	var publishing sync.WaitGroup
	defer publishing.Wait()
	published, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop() // when the engine has ended
	if err := w.publish(published, transactor, &publishing); err != nil {
		return err
	}
	w.out.write(note{Ready: true})
	return engine.Run(context.WithoutCancel(ctx)) // until the subscriptions have ended
}

// stack returns the stack of the mode. It is the only difference between the modes.
func (w worker) stack(transactor *luatx.Transactor) (message.Middleware, error) {
	cfg := stack.Config{
		Logger: w.log,
		OutboxStreamFor: func(input *message.Message) (string, error) {
			tag, err := w.keys.space.Tag(input.Subject())
			return w.keys.outbox(tag), err
		},
		MessageID: func(input *message.Message) (message.Identity, error) {
			return message.Identity{Source: input.Type(), ID: input.ID()}, nil
		},
		MarkKey: w.keys.mark,
	}
	if w.cfg.Mode == shop.Pipeline {
		return stack.Pipelined(w.client, cfg)
	}
	return stack.Scripted(transactor, cfg)
}

// engine returns an Engine with both handlers in the stack.
func (w worker) engine(mw message.Middleware) (*message.Engine, error) {
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{
		Concurrency: 2 * partitions * inFlight, // every message in flight has a worker
		Logger:      w.log,
	}})
	books := redisBooks{w.client, w.keys}
	book := shop.BookInvoice(books, func(code string) string {
		tag, _ := w.keys.space.Tag(code) // checked when the order was read
		return w.keys.sold(tag)
	})
	return engine, errors.Join(
		engine.Router().Use(message.NewMiddleware(w.out.stopwatch), mw, message.NewMiddleware(w.pretend)),
		engine.AddHandler("book-invoice", nil, book),
		engine.AddHandler("take-stock", nil, shop.TakeStock(books)),
	)
}

// pretend is a middleware that reports the start of an invoice and takes the time of a real handler.
func (w worker) pretend(next message.ProcessFunc) message.ProcessFunc {
	return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
		if msg.Type() == shop.TypeInvoice {
			w.out.write(note{Busy: true})
		}
		if !sleep.For(ctx, w.cfg.Work) {
			return nil, ctx.Err()
		}
		return next(ctx, msg)
	}
}

// subscribe adds the orders and the sold lines of every tag to the engine.
func (w worker) subscribe(ctx context.Context, engine *message.Engine) error {
	for _, tag := range w.keys.space.Tags() {
		for _, key := range []string{w.keys.orders(tag), w.keys.sold(tag)} {
			sub, err := stream.NewSubscriber(w.client, w.subscriber(key, group))
			if err != nil {
				return err
			}
			messages, err := sub.Subscribe(ctx)
			if err != nil {
				return fmt.Errorf("subscribe to %s: %w", key, err)
			}
			if err := engine.AddRawInput(key, nil, messages); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w worker) subscriber(key, group string) stream.SubscriberConfig {
	return stream.SubscriberConfig{
		Stream: key, Group: group, BatchSize: inFlight, BlockTimeout: blockTimeout,
		ClaimInterval: claimInterval, MaxIdleTime: minIdleTime + 4*w.cfg.Work, Logger: w.log,
	}
}

// publish publishes events to the streams of the products until ctx ends. In scripted mode a relay publishes the events in
// the outbox, and in pipeline mode forwarders publish the entries of the outbox streams.
func (w worker) publish(ctx context.Context, transactor *luatx.Transactor, running *sync.WaitGroup) error {
	publisher, err := stream.NewPublisher(w.client, stream.PublisherConfig{
		StreamFor: func(event *message.RawMessage) (string, error) { return event.Destination(), nil },
		Logger:    w.log,
	})
	if err != nil {
		return err
	}
	if w.cfg.Mode == shop.Pipeline {
		return w.forward(ctx, publisher, running)
	}
	r, err := relay.New(transactor, toStreams(publisher), relay.Config{
		Lease: lease, SweepInterval: claimInterval, DrainTimeout: stopTimeout, Logger: w.log, Attempts: attempts,
	})
	if err != nil {
		return err
	}
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			w.log.Error("relay failed", "error", err)
		}
	})
	return nil
}

// forward publishes the entries of the outbox streams.
func (w worker) forward(ctx context.Context, publisher *stream.Publisher, running *sync.WaitGroup) error {
	for _, tag := range w.keys.space.Tags() {
		sub, err := stream.NewOutboxSubscriber(w.client, w.subscriber(w.keys.outbox(tag), ""))
		if err != nil {
			return err
		}
		events, err := sub.Subscribe(ctx)
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", w.keys.outbox(tag), err)
		}
		done, err := publisher.Publish(context.WithoutCancel(ctx), events) // until the subscription has ended
		if err != nil {
			return err
		}
		running.Go(func() { <-done })
	}
	return nil
}

// toStreams returns a Publisher for the relay that writes to streams. If a stream cannot be written, the destination counts
// as unavailable.
func toStreams(publisher *stream.Publisher) relay.Publisher {
	return relay.PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		errs := publisher.Send(ctx, events...)
		for i, err := range errs {
			if !message.IsPermanent(err) {
				errs[i] = relay.Unavailable(err)
			}
		}
		return errs
	})
}

// notes writes the notes of a worker for its parent.
type notes struct {
	mu  sync.Mutex
	out *json.Encoder
}

// write ignores errors, because the worker ends when its parent does.
func (n *notes) write(line note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.out.Encode(line)
}

// stopwatch is a middleware that measures the time from the receipt of an invoice to its acknowledgement.
func (n *notes) stopwatch(next message.ProcessFunc) message.ProcessFunc {
	return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
		if msg.Type() == shop.TypeInvoice {
			received := time.Now()
			go func() {
				<-msg.Settled()
				if msg.Err() == nil {
					n.write(note{TookMicros: time.Since(received).Microseconds()})
				}
			}()
		}
		return next(ctx, msg)
	}
}
