package ways

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/message"
)

// committer is luatx in a place: a router with what makes a message's handler one transaction.
type committer struct {
	*place
	transactor *luatx.Transactor
	router     *message.Router
}

type handler func(ctx context.Context, tx *luatx.Tx, in input) error

// inputKey finds the input in the context of its handler: decoding a message is not what is measured.
type inputKey struct{}

func newCommitter(p *place, handle handler) (*committer, error) {
	tr, err := luatx.New(p.client, luatx.Config{
		Namespace: p.name, Keyspace: p.keyspace(), Retention: retention, OutboxCapacity: 1 << 30, OutboxBytes: 1 << 40,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	p.waits = append(p.waits, link.Of(tr).Commits.Wait)
	c := &committer{p, tr, message.NewRouter(message.PipeConfig{})}
	for i := range p.tags { // so that preparing a round empties the outbox
		shard := link.Of(tr).Scripts.Shard(slot.OfTag(p.tags[i].text))
		p.tags[i].bodies = shard.Key("bodies")
		for _, name := range []string{"entries", "pending", "counts"} {
			p.tags[i].events = append(p.tags[i].events, shard.Key(name))
		}
	}
	return c, errors.Join(
		c.router.Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{})),
		c.router.AddHandler("h", nil, message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
			tx, _ := luatx.TxFromContext(ctx)
			in, _ := ctx.Value(inputKey{}).(*input)
			return nil, handle(ctx, tx, *in)
		})))
}

// process handles an input as a delivery that commits with its acknowledgement.
func (c *committer) process(ctx context.Context, in *input) error {
	return c.deliver(ctx, in, message.AckingConfig{
		Source: message.Source{Stream: in.in, Group: group, Consumer: consumer, Entry: in.entry},
	})
}

func (c *committer) deliver(ctx context.Context, in *input, acking message.AckingConfig) error {
	msg := message.New(nil, message.Attributes{"id": in.entry, "source": "/bench", "type": "t", "subject": in.text}, message.NewAckingFrom(acking))
	_, err := c.router.Process(context.WithValue(ctx, inputKey{}, in), msg)
	return err
}

// business records the writes.
func business(ctx context.Context, tx *luatx.Tx, in input) error {
	pipe := tx.Pipeline()
	pipe.HSet(ctx, in.hash, "a", 1, "b", 2, "c", 3)
	return luatx.Queued(pipe.Incr(ctx, in.counter))
}

func (p *place) emit(tx *luatx.Tx) error { return tx.Emit(luatx.Event{Data: p.body}) }

// whole is the transaction as the other ways have it.
func (p *place) whole(ctx context.Context, tx *luatx.Tx, in input) error {
	if err := business(ctx, tx, in); err != nil {
		return err
	}
	return p.emit(tx)
}

// single is luatx with one delivery a call.
func single(p *place, handle handler) (*measure.Running, error) {
	c, err := newCommitter(p, handle)
	if err != nil {
		return nil, err
	}
	return p.running(func(ctx context.Context, _ int, in input) error { return c.process(ctx, &in) }), nil
}

func fused(p *place, _ measure.Cell) (*measure.Running, error) { return single(p, p.whole) }

// separateAck has the input elsewhere: it is acknowledged after the commit.
func separateAck(p *place, _ measure.Cell) (*measure.Running, error) {
	c, err := newCommitter(p, p.whole)
	if err != nil {
		return nil, err
	}
	return p.running(func(ctx context.Context, _ int, in input) error {
		var result error
		err := c.deliver(ctx, &in, message.AckingConfig{Ack: func() { result = acked(p.client.XAck(ctx, in.in, group, in.entry)) }})
		return errors.Join(err, result)
	}), nil
}

// streamOutbox adds the event to a stream.
func streamOutbox(p *place, _ measure.Cell) (*measure.Running, error) {
	return single(p, func(ctx context.Context, tx *luatx.Tx, in input) error {
		if err := business(ctx, tx, in); err != nil {
			return err
		}
		return tx.Pipeline().XAdd(ctx, &redis.XAddArgs{Stream: in.out, Values: []any{"data", p.body}}).Err()
	})
}

// guarded reads a field that nobody changes before it writes; the commit checks that it is still the same.
func guarded(p *place, _ measure.Cell) (*measure.Running, error) {
	return single(p, func(ctx context.Context, tx *luatx.Tx, in input) error {
		if err := tx.Read().HGet(ctx, in.hash, "d").Err(); !errors.Is(err, redis.Nil) {
			return errors.Join(err, errors.New("field d exists, but the transaction does not write it"))
		}
		return p.whole(ctx, tx, in)
	})
}

// dumpUndo replaces the hash, so that the script must keep the whole old value for the undo.
func dumpUndo(p *place, _ measure.Cell) (*measure.Running, error) {
	return single(p, func(ctx context.Context, tx *luatx.Tx, in input) error {
		if err := tx.Pipeline().Del(ctx, in.hash).Err(); err != nil {
			return err
		}
		return p.whole(ctx, tx, in)
	})
}

// unbatched gives every caller a Transactor of its own, so that no two share a round trip.
func unbatched(p *place, cell measure.Cell) (*measure.Running, error) {
	all := make([]*committer, cell.Callers)
	for i := range all {
		var err error
		if all[i], err = newCommitter(p, p.whole); err != nil {
			return nil, err
		}
	}
	return p.running(func(ctx context.Context, worker int, in input) error { return all[worker].process(ctx, &in) }), nil
}

// batch commits so many deliveries together, as stream.Subscriber.Consume does with what it reads at once.
func batch(size int) func(*place, measure.Cell) (*measure.Running, error) {
	return func(p *place, _ measure.Cell) (*measure.Running, error) {
		c, err := newCommitter(p, p.whole)
		if err != nil {
			return nil, err
		}
		return p.batches(size, c.together), nil
	}
}

// general sends every transaction through the general script, alone or in batches.
func general(size int) func(*place, measure.Cell) (*measure.Running, error) {
	return func(p *place, _ measure.Cell) (*measure.Running, error) {
		c, err := newCommitter(p, p.whole)
		if err != nil {
			return nil, err
		}
		link.Of(c.transactor).Commits.CompileAfter(0)
		return p.batches(size, c.together), nil
	}
}

// together processes inputs at once, which commit together.
func (c *committer) together(ctx context.Context, inputs []input) error {
	gathering := link.Of(c.transactor).Gather(ctx, len(inputs), 0, nil)
	under := gathering.Context(ctx)
	errs := make([]error, len(inputs))
	var wg sync.WaitGroup
	for i := range inputs {
		wg.Go(func() {
			defer gathering.Leave()
			errs[i] = c.process(under, &inputs[i])
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
