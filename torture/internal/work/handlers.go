package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
	"github.com/luatx/luatx/trigger"
)

const (
	readBatch     = 16
	blockTimeout  = 500 * time.Millisecond
	claimInterval = 250 * time.Millisecond
)

// handle reads the streams of all branches until ctx ends: orders with inbox and outbox, ticks without an inbox. Some
// processes read orders as single messages and ticks in batches, and others the opposite.
func (p *process) handle(ctx context.Context, running *sync.WaitGroup) error {
	scripted, err := stack.Scripted(p.tr, stack.Config{OrderingKey: outbox.ByPartitionKey, RelayElsewhere: true, Logger: p.log})
	if err != nil {
		return err
	}
	orders, err := p.engine(scripted, map[string]message.Handler{
		"order": message.NewHandler(p.order, message.Named(OrderType)),
		"sent":  message.NewHandler(p.sent, message.Named(SentType)),
	})
	if err != nil {
		return err
	}
	ticks, err := p.engine(luatx.Middleware(p.tr), map[string]message.Handler{"tick": message.NewHandler(p.tick, message.Named(TickType))})
	if err != nil {
		return err
	}
	signals, err := p.engine(luatx.Middleware(p.tr), map[string]message.Handler{
		"signal": message.NewHandler(p.signal, message.Named(trigger.TypeStream)),
	})
	if err != nil {
		return err
	}
	single, batched := orders, ticks // engines that read single messages, and batches that commit together
	if p.Number%2 == 1 {
		single, batched = ticks, orders
	}
	running.Go(func() { p.steps(ctx) })
	for _, b := range p.branches {
		one, many := b.Orders, b.Ticks
		if single == ticks {
			one, many = many, one
		}
		if err := p.subscribe(ctx, single, one); err != nil {
			return err
		}
		running.Go(func() { p.consume(ctx, batched, many) })
		running.Go(func() { p.signals(ctx, signals, b) })
	}
	return single.Run(context.WithoutCancel(ctx)) // until the subscriptions have ended
}

func (p *process) engine(mw message.Middleware, handlers map[string]message.Handler) (*message.Engine, error) {
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{
		Concurrency: readBatch * len(p.branches), Logger: p.log,
		ErrorHandler: func(context.Context, *message.Message, error) {}, // the input is delivered again
	}})
	if err := engine.Router().Use(message.NewMiddleware(p.count), mw); err != nil {
		return nil, err
	}
	for name, handler := range handlers {
		if err := engine.AddHandler(name, nil, handler); err != nil {
			return nil, err
		}
	}
	return engine, nil
}

// count is a middleware that counts commits.
func (p *process) count(next message.ProcessFunc) message.ProcessFunc {
	return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
		outputs, err := next(ctx, msg)
		if b, found := p.branch(msg.Subject()); err == nil && found {
			p.notes.committed(b.N)
		}
		return outputs, err
	}
}

// subscribe subscribes to a stream. It waits for the servers if they are unavailable.
func (p *process) subscribe(ctx context.Context, engine *message.Engine, key string) error {
	sub, err := stream.NewSubscriber(p.client, p.subscriber(key))
	if err != nil {
		return err
	}
	var messages <-chan *message.RawMessage
	err = p.insist(ctx, func() error {
		messages, err = sub.Subscribe(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return engine.AddRawInput(key, nil, messages)
}

func (p *process) consume(ctx context.Context, engine *message.Engine, key string) {
	p.check(p.insist(ctx, func() error {
		sub, err := stream.NewSubscriber(p.client, p.subscriber(key))
		if err != nil {
			return err
		}
		return sub.Consume(ctx, p.tr, stream.ProcessFunc(func(ctx context.Context, raw *message.RawMessage) error {
			_ = engine.ProcessRaw(ctx, raw) // the input is delivered again
			return nil
		}))
	}))
}

// insist retries until do succeeds or ctx ends.
func (p *process) insist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || !sleep.For(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

func (p *process) subscriber(key string) stream.SubscriberConfig {
	return stream.SubscriberConfig{
		Stream: key, Group: ground.Group, BatchSize: readBatch, BlockTimeout: blockTimeout, ClaimInterval: claimInterval,
		MaxIdleTime: ground.MaxIdle, NackBackoff: message.Backoff{Base: 10 * time.Millisecond, Max: 200 * time.Millisecond}, Logger: p.log,
	}
}

func (p *process) branch(name string) (ground.Branch, bool) {
	i := slices.IndexFunc(p.branches, func(b ground.Branch) bool { return b.Name == name })
	if i < 0 {
		return ground.Branch{}, false
	}
	return p.branches[i], true
}

// begin records that a handler runs for an input, and the event that it would create.
func (p *process) begin(ctx context.Context, msg message.Attributes) (b ground.Branch, event string, err error) {
	b, found := p.branch(msg.Subject())
	tx, inside := luatx.TxFromContext(ctx)
	if !found || !inside {
		return b, "", message.Permanent(fmt.Errorf("message %s: unknown branch %q, or no transaction", msg.ID(), msg.Subject()))
	}
	event = tx.EventID()
	p.note(history.Line{Kind: history.Ran, ID: msg.ID(), Branch: b.N, Event: event, Start: p.now()})
	return b, event, mishap(ctx)
}

type order struct {
	Product string `json:"product"`
	Units   int64  `json:"units"`
}

// order takes units from the stock and emits an event in the lane of the product.
func (p *process) order(ctx context.Context, msg *message.TypedMessage[order]) ([]*message.Message, error) {
	b, event, err := p.begin(ctx, msg.Attributes)
	if err != nil {
		return nil, err
	}
	product := msg.Data.Product
	n, err := orZero(luatx.ReaderFromContext(ctx, p.client).HGet(ctx, b.Lanes, product))
	if err != nil {
		return nil, err
	}
	c := luatx.CmdableFromContext(ctx, p.client)
	err = errors.Join(
		luatx.Queued(c.HSet(ctx, b.Lanes, product, n+1)),
		luatx.Queued(c.HIncrBy(ctx, b.Stock, product, -msg.Data.Units)),
		p.effect(ctx, b, msg.ID(), ground.Effect{Kind: ground.Order, From: product, To: "-", Amount: msg.Data.Units, Event: event, Lane: product, N: n + 1}),
	)
	return []*message.Message{p.output("booked", msg.Attributes, product, n+1)}, err
}

// sent adds money from another branch to an account.
func (p *process) sent(ctx context.Context, msg *message.TypedMessage[Payload]) ([]*message.Message, error) {
	b, event, err := p.begin(ctx, msg.Attributes)
	if err != nil {
		return nil, err
	}
	c := luatx.CmdableFromContext(ctx, p.client)
	err = errors.Join(
		luatx.Queued(c.HIncrBy(ctx, b.Balances, msg.Data.To, msg.Data.Amount)),
		luatx.Queued(c.HIncrBy(ctx, b.Sums, "in", msg.Data.Amount)),
		p.effect(ctx, b, msg.ID(), ground.Effect{Kind: ground.Credit, From: "-", To: msg.Data.To, Amount: msg.Data.Amount, Event: event, Lane: ground.NoLane}),
	)
	return []*message.Message{p.output("credited", msg.Attributes, "", 0)}, err
}

func (p *process) tick(ctx context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
	return nil, p.counted(ctx, msg.Subject(), msg.ID(), func(b ground.Branch) string { return b.Ticked })
}

// counted counts an entry of a stream without an inbox.
func (p *process) counted(ctx context.Context, subject, id string, in func(ground.Branch) string) error {
	b, found := p.branch(subject)
	if !found {
		return message.Permanent(fmt.Errorf("entry %s: unknown branch %q", id, subject))
	}
	if err := mishap(ctx); err != nil {
		return err
	}
	return luatx.Queued(luatx.CmdableFromContext(ctx, p.client).HIncrBy(ctx, in(b), id, 1))
}

// effect records the effect of an input.
func (p *process) effect(ctx context.Context, b ground.Branch, id string, e ground.Effect) error {
	c := luatx.CmdableFromContext(ctx, p.client)
	return errors.Join(
		luatx.Queued(c.HSet(ctx, b.Effects, id, e.String())),
		luatx.Queued(c.HIncrBy(ctx, b.Times, id, 1)),
		luatx.Queued(c.HIncrBy(ctx, b.Sums, "count", 1)),
	)
}

// output returns an event without an id, because the outbox derives it.
func (p *process) output(kind string, input message.Attributes, lane string, n int64) *message.Message {
	attrs := message.Attributes{
		message.AttrType: kind, message.AttrSource: "/shop", message.AttrSubject: input.Subject(), message.AttrCorrelationID: input.ID(),
	}
	if lane != "" {
		attrs[message.AttrPartitionKey] = lane
	}
	payload := Payload{N: n, Filling: fill(input.ID())}
	declareFilling(attrs, payload)
	return message.New(payload, attrs, nil)
}

// mishap makes handlers misbehave: now and then one fails, panics or takes long, sometimes longer than MaxIdle.
func mishap(ctx context.Context) error {
	switch at := rand.Float64(); {
	case at < 0.03:
		return errors.New("mishap")
	case at < 0.035:
		panic("mishap") //nolint:forbidigo // handlers do
	case at < 0.1:
		return pause(ctx, rand.N(150*time.Millisecond))
	case at < 0.103:
		return pause(ctx, ground.MaxIdle+rand.N(500*time.Millisecond))
	default:
		return nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	sleep.For(ctx, d)
	return ctx.Err()
}
