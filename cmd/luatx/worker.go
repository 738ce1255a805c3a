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

// workerCommand is how the demo starts its workers; nobody else does.
const workerCommand = "demo-worker"

// The workers' pace. Another worker takes over the messages of a killed one in little more than a
// second.
const (
	inFlight      = 4 // messages a stream
	blockTimeout  = 500 * time.Millisecond
	claimInterval = 250 * time.Millisecond
	minIdleTime   = 1 * time.Second // must exceed what a handler takes
	lease         = minIdleTime
	stopTimeout   = 5 * time.Second
	attempts      = 100 // to publish an event: relays are killed at it, and it is no fault of the event
)

// workerConfig is what a worker reads from its standard input; the end of that input tells it to stop.
type workerConfig struct {
	Server    server        `json:"server"`
	Namespace string        `json:"namespace"`
	Mode      shop.Mode     `json:"mode"`
	Work      time.Duration `json:"work_ns"`
}

// note is a line on a worker's standard output.
type note struct {
	Ready      bool  `json:"ready,omitempty"`   // it reads every stream
	Busy       bool  `json:"busy,omitempty"`    // it handles an invoice
	TookMicros int64 `json:"took_us,omitempty"` // from the receipt of an invoice to its acknowledgement
}

// work is the worker's process.
func work(std standard) int {
	signal.Ignore(os.Interrupt) // the terminal sends it to all; the parent decides
	log := slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	in := json.NewDecoder(std.in)
	var cfg workerConfig
	if err := in.Decode(&cfg); err != nil {
		log.Error("no configuration on standard input", "error", err)
		return statusUsage
	}
	go func() { // ends with the parent, or the process
		_, _ = io.Copy(io.Discard, std.in)
		stop()
		<-time.After(2 * stopTimeout)
		log.Error("the worker does not come to its end")
		os.Exit(statusInexact)
	}()
	w := worker{cfg: cfg, keys: newLayout(cfg.Namespace), client: cfg.Server.connect(), log: log, out: &notes{out: json.NewEncoder(std.out)}}
	defer func() { _ = w.client.Close() }() // at the end of its use
	if err := w.run(ctx); err != nil {
		log.Error("the worker failed", "error", err)
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

// stack is where the modes differ: in one line.
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

// engine has both handlers in the stack.
func (w worker) engine(mw message.Middleware) (*message.Engine, error) {
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{
		Concurrency: 2 * partitions * inFlight, // nothing in flight waits for a worker
		Logger:      w.log,
	}})
	books := redisBooks{w.client, w.keys}
	book := shop.BookInvoice(books, func(code string) string {
		tag, _ := w.keys.space.Tag(code) // it was checked as the order was read
		return w.keys.sold(tag)
	})
	return engine, errors.Join(
		engine.Router().Use(message.NewMiddleware(w.out.stopwatch), mw, message.NewMiddleware(w.pretend)),
		engine.AddHandler("book-invoice", nil, book),
		engine.AddHandler("take-stock", nil, shop.TakeStock(books)),
	)
}

// pretend is a middleware that reports an invoice as begun and takes the time that a real handler would take.
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

// subscribe reads the orders and the sold lines of every tag into the engine.
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

// publish carries events to the streams of the products until ctx ends: the relay what the scripts have put into the
// outbox, or forwarders what the pipelines have.
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
			w.log.Error("the relay failed", "error", err)
		}
	})
	return nil
}

// forward publishes what the outbox streams hold.
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

// toStreams makes the relay's Publisher of one that writes streams. A stream that cannot be written is no fault of
// the event.
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

// notes are what a worker tells its parent.
type notes struct {
	mu  sync.Mutex
	out *json.Encoder
}

// write ignores what becomes of the note: without a parent there is nobody to hear it, and the worker ends.
func (n *notes) write(line note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.out.Encode(line)
}

// stopwatch is a middleware that takes the time from the receipt of an invoice to its acknowledgement.
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
