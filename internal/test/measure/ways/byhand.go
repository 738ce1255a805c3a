package ways

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/measure"
)

var errSeen = errors.New("a new message was treated as a duplicate")

// mark is the key that remembers a message.
func (in input) mark() string { return in.ids + ":" + in.entry }

// write is the business part, and the event as an entry of a stream.
func (p *place) write(ctx context.Context, c redis.Cmdable, in input) {
	c.HSet(ctx, in.hash, "a", 1, "b", 2, "c", 3)
	c.Incr(ctx, in.counter)
	c.XAdd(ctx, &redis.XAddArgs{Stream: in.out, Values: []any{"data", p.body}})
}

// threeStep is what most services do: mark, MULTI … EXEC, acknowledge. A crash between the first two loses the message.
func threeStep(p *place, _ measure.Cell) (*measure.Running, error) {
	return p.running(func(ctx context.Context, _ int, in input) error {
		fresh, err := p.client.SetNX(ctx, in.mark(), "1", retention).Result()
		if err != nil || !fresh {
			return errors.Join(err, errSeen)
		}
		if _, err := p.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			p.write(ctx, pipe, in)
			return nil
		}); err != nil {
			return err
		}
		return acked(p.client.XAck(ctx, in.in, group, in.entry))
	}), nil
}

// watch puts the mark into the MULTI, and watches that nobody else sets it.
func watch(p *place, _ measure.Cell) (*measure.Running, error) {
	return p.running(func(ctx context.Context, _ int, in input) error {
		if err := p.client.Watch(ctx, func(tx *redis.Tx) error {
			if n, err := tx.Exists(ctx, in.mark()).Result(); err != nil || n > 0 {
				return errors.Join(err, errSeen)
			}
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, in.mark(), "1", retention)
				p.write(ctx, pipe, in)
				return nil
			})
			return err
		}, in.mark()); err != nil {
			return err
		}
		return acked(p.client.XAck(ctx, in.in, group, in.entry))
	}), nil
}

// byHand is a script for this very transaction: no other commands, nothing undone where one of them fails, no fence.
var byHand = redis.NewScript(`
if not redis.call('SET', KEYS[1], '1', 'NX', 'PX', ARGV[1]) then return 0 end
redis.call('HSET', KEYS[2], 'a', '1', 'b', '2', 'c', '3')
redis.call('INCR', KEYS[3])
redis.call('XADD', KEYS[4], '*', 'data', ARGV[2])
return redis.call('XACK', KEYS[5], ARGV[3], ARGV[4])`)

// handwritten is the floor of what a script can cost.
func handwritten(p *place, _ measure.Cell) (*measure.Running, error) {
	return p.running(func(ctx context.Context, _ int, in input) error {
		keys := []string{in.mark(), in.hash, in.counter, in.out, in.in}
		n, err := byHand.Run(ctx, p.client, keys, retention.Milliseconds(), p.body, group, in.entry).Int()
		if err == nil && n != 1 {
			return errSeen
		}
		return err
	}), nil
}

// pipeline is the limit without scripts: all commands in one round trip, whatever becomes of each.
func pipeline(p *place, _ measure.Cell) (*measure.Running, error) { return p.pipelineOf(1), nil }

func pipeline16(p *place, _ measure.Cell) (*measure.Running, error) {
	return p.pipelineOf(BatchSize), nil
}

func (p *place) pipelineOf(size int) *measure.Running {
	return p.batches(size, func(ctx context.Context, inputs []input) error {
		pipe := p.client.Pipeline()
		for _, in := range inputs {
			pipe.SetNX(ctx, in.mark(), "1", retention)
			p.write(ctx, pipe, in)
			pipe.XAck(ctx, in.in, group, in.entry)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

func acked(cmd *redis.IntCmd) error {
	if n, err := cmd.Result(); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("%d messages were acknowledged, want 1", n))
	}
	return nil
}
