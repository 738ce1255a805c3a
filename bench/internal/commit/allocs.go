package commit

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
)

// allocations returns the number of allocations per transaction beyond those of go-redis. The baseline creates the same
// commands and sends one prepared EVALSHA with as many arguments to an empty script.
func allocations(ctx context.Context, servers *servers) (float64, error) {
	d, err := servers.get(ctx, plain)
	if err != nil {
		return 0, err
	}
	client := d.client(1, 0)
	defer d.finish(ctx, client)
	sent := &lastEval{}
	client.AddHook(sent)
	tr, err := luatx.New(client, luatx.Config{Namespace: "bench-allocs", OutboxCapacity: 1 << 30, OutboxBytes: 1 << 40})
	if err != nil {
		return 0, err
	}
	body := make([]byte, basePayload)
	record := func(c redis.Cmdable) error {
		c.HSet(ctx, "{a}:hash", "a", 1, "b", 2, "c", 3)
		return luatx.Queued(c.Incr(ctx, "{a}:counter"))
	}
	transact := func() error {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			return errors.Join(record(tx.Pipeline()), tx.Emit(luatx.Event{Data: body}))
		})
		return err
	}
	if err := transact(); err != nil {
		return 0, err
	}
	sha, err := client.ScriptLoad(ctx, "return {'1795000000000', {'committed', 0, 3, '1'}}").Result()
	if err != nil {
		return 0, err
	}
	args := sent.args()
	args[1] = sha
	pipe := client.Pipeline()
	own, err := allocsOf(func() error {
		err := record(pipe)
		pipe.Discard()
		return errors.Join(err, client.Do(ctx, args...).Err())
	})
	if err != nil {
		return 0, err
	}
	all, err := allocsOf(transact)
	return all - own, err
}

// allocsOf returns the mean number of allocations of a call.
func allocsOf(call func() error) (float64, error) {
	const calls = 1000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := call(); err != nil {
		return 0, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		if err := call(); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / calls), nil
}

// lastEval is a hook that records the arguments of the last EVALSHA.
type lastEval struct {
	mu   sync.Mutex
	last []any
}

func (*lastEval) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lastEval) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			l.mu.Lock()
			l.last = slices.Clone(cmd.Args())
			l.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

func (*lastEval) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *lastEval) args() []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last)
}
