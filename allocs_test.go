package luatx_test

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/race"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// The maximum number of allocations besides those of go-redis, for a transaction, and for a message in the scripted stack,
// including the message and its output.
const (
	maxAllocs        = 15
	maxMessageAllocs = 36
)

// TestCommitAllocatesLittleMoreThanGoRedis compares the allocations of a commit with three fields, a counter and an event to be
// encoded with those of go-redis alone, which creates the same commands and sends one EVALSHA with as many prepared arguments.
func TestCommitAllocatesLittleMoreThanGoRedis(t *testing.T) { // not parallel: all allocations of the process count
	if race.On {
		t.Skip("under the race detector a sync.Pool drops values at random")
	}
	client := redistest.Shared(t).Client(t)
	ctx, tr := t.Context(), rig.NewTransactor(t, client)
	hash, counter, body := rig.Key(t, tr, "a", "hash"), rig.Key(t, tr, "a", "counter"), make([]byte, 300)
	attrs := message.Attributes{"type": "t", "source": "/s", "datacontenttype": "application/octet-stream"}
	record := func(c redis.Cmdable) error {
		c.HSet(ctx, hash, "a", 1, "b", 2, "c", 3)
		return luatx.Queued(c.Incr(ctx, counter))
	}
	transact := func() {
		_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
			if err := record(tx.Pipeline()); err != nil {
				return err
			}
			return tx.Emit(luatx.Event{Data: body, Attributes: attrs})
		})
		redistest.Must(t, err)
	}
	mw, err := stack.Scripted(tr, stack.Config{})
	redistest.Must(t, err)
	router := message.NewRouter(message.PipeConfig{})
	_ = router.Use(mw)
	_ = router.AddHandler("h", nil, message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		output := message.New(body, message.Attributes{"type": "t", "source": "/s", "datacontenttype": "application/octet-stream"}, nil)
		return []*message.Message{output}, record(luatx.CmdableFromContext(ctx, client))
	}))
	handle := func() {
		msg := message.New(nil, message.Attributes{"id": message.NewID(), "source": "/s", "type": "t", "subject": "a"}, nil)
		_, err := router.Process(ctx, msg)
		redistest.Must(t, err)
	}

	commits := link.Of(tr).Commits
	redistest.Eventually(t, "their plan is compiled", func() bool {
		transact()
		handle()
		return len(commits.Plans()) == 1
	})
	const runs = 300
	pipe, sent := client.Pipeline(), evalsha(t, client, transact)
	own := leastAllocs(runs, func() {
		_ = record(pipe)
		pipe.Discard()
		redistest.Must(t, client.Do(ctx, sent...).Err())
	})
	for name, c := range map[string]struct {
		work func()
		most float64
	}{"transaction": {transact, maxAllocs}, "message": {handle, maxMessageAllocs}} {
		got := leastAllocs(runs, c.work) - own
		t.Logf("a %s: %v allocations and go-redis' %v", name, got, own)
		if got > c.most {
			t.Errorf("a %s allocates %v times more than go-redis alone, %v at most were enough", name, got, c.most)
		}
	}
}

// leastAllocs returns the minimum of three measurements, because other work of the process only adds allocations.
func leastAllocs(runs int, work func()) float64 {
	least := testing.AllocsPerRun(runs, work)
	for range 2 {
		least = min(least, testing.AllocsPerRun(runs, work))
	}
	return least
}

// evalsha returns the arguments of the EVALSHA that commit sends. The script is replaced by one that does nothing and returns a
// similar reply.
func evalsha(t *testing.T, client *redis.Client, commit func()) []any {
	t.Helper()
	s := &sentArgs{}
	client.AddHook(s)
	commit()
	sha, err := client.ScriptLoad(t.Context(), "return {'1795000000000', 0, 3, '1'}").Result()
	if err != nil || len(s.args) < 20 {
		t.Fatal(s.args, err)
	}
	args := slices.Clone(s.args)
	args[1] = sha
	return args
}

// sentArgs is a hook that stores the arguments of the last EVALSHA.
type sentArgs struct{ args []any }

func (*sentArgs) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *sentArgs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			s.args = cmd.Args()
		}
		return next(ctx, cmd)
	}
}

func (*sentArgs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
