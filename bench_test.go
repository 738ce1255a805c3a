package luatx_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/race"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// byHand does only what the benchmark's message requires: it has no fence, no undo and no retention.
var byHand = redis.NewScript(`
if redis.call('HSETNX', KEYS[1], ARGV[1], '') == 0 then return 0 end
redis.call('HSET', KEYS[2], 'a', 1, 'b', 2, 'c', 3)
redis.call('INCR', KEYS[3])
redis.call('HSETNX', KEYS[4], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[5], ARGV[3], ARGV[1])
return redis.call('XACK', KEYS[6], 'g', ARGV[1])`)

// BenchmarkMessage handles a message (three fields, a counter, one event of 300 bytes, the acknowledgement) in both modes and
// with a handwritten script, with 1 to 256 workers on one server. Compare results only within one run.
func BenchmarkMessage(b *testing.B) {
	for _, workers := range []int{1, 8, 64, 256} {
		for _, mode := range []string{"pipelined", "handwritten", "scripted"} {
			b.Run(fmt.Sprintf("%s/%d", mode, workers), func(b *testing.B) { benchMessage(b, mode, workers) })
		}
	}
}

func benchMessage(b *testing.B, mode string, workers int) {
	b.Helper()
	client := redistest.Shared(b).Client(b, func(o *redis.Options) { o.PoolSize = 70 })
	ctx, tr := b.Context(), rig.NewTransactor(b, client, func(c *luatx.Config) { c.OutboxCapacity, c.OutboxBytes = 1<<30, 1<<40 })
	in := rig.Key(b, tr, "a", "in")
	client.XGroupCreateMkStream(ctx, in, "g", "0")
	var mw message.Middleware
	var err error
	if mode == "scripted" {
		mw, err = stack.Scripted(tr, stack.Config{})
	} else {
		mw, err = stack.Pipelined(client, stack.Config{OutboxStream: rig.Key(b, tr, "a", "out"), MarkKey: func(id message.Identity) string {
			return tr.Config().Namespace + "inbox:" + id.Source + ":" + id.ID
		}})
	}
	redistest.Must(b, err)
	body := make([]byte, 300)
	hash, counter := rig.Key(b, tr, "a", "hash"), rig.Key(b, tr, "a", "counter")
	h := message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		c := luatx.CmdableFromContext(ctx, client)
		c.HSet(ctx, hash, "a", 1, "b", 2, "c", 3)
		return []*message.Message{message.New(body, message.Attributes{"type": "t", "source": "/s", "datacontenttype": "application/octet-stream"}, nil)},
			luatx.Queued(c.Incr(ctx, counter))
	})
	r := message.NewRouter(message.PipeConfig{})
	_ = r.Use(mw)
	_ = r.AddHandler("h", nil, h)
	entries := make([]string, b.N)
	for i := range entries {
		entries[i] = client.XAdd(ctx, &redis.XAddArgs{Stream: in, Values: []any{"f", "v"}}).Val()
	}
	for read := 0; read < b.N; {
		got, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{in, ">"}, Count: 1000}).Result()
		redistest.Must(b, err)
		read += len(got[0].Messages)
	}
	var next atomic.Int64
	b.SetParallelism((workers + 1) / 2)
	b.ResetTimer()
	b.ReportAllocs()
	defer serverTime(b, client)()
	work := func() bool {
		i := next.Add(1) - 1
		if i >= int64(b.N) {
			return false
		}
		entry := entries[i]
		msg := message.New(nil, message.Attributes{"id": entry, "source": "/s", "type": "t", "subject": "a"}, message.NewAckingFrom(message.AckingConfig{
			Ack:    func() { client.XAck(ctx, in, "g", entry) },
			Source: message.Source{Stream: in, Group: "g", Consumer: "c", Entry: entry},
		}))
		var err error
		if mode == "handwritten" {
			keys := []string{in + ":ids", hash, counter, in + ":entries", in + ":pending", in}
			err = byHand.Run(ctx, client, keys, entry, body, time.Now().UnixMilli()).Err()
		} else {
			_, err = r.Process(ctx, msg)
		}
		if err != nil {
			b.Error(err)
		}
		return err == nil
	}
	if workers == 1 {
		for work() {
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			work()
		}
	})
}

// BenchmarkTransact commits the same without a message, with 1 to 256 workers, on one slot and on many.
func BenchmarkTransact(b *testing.B) {
	for _, tags := range []int{1, 256} {
		for _, workers := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("tags=%d/%d", tags, workers), func(b *testing.B) { benchTransact(b, tags, workers) })
		}
	}
}

func benchTransact(b *testing.B, tags, workers int) {
	b.Helper()
	client := redistest.Shared(b).Client(b, func(o *redis.Options) { o.PoolSize = 300 })
	ctx, tr := b.Context(), rig.NewTransactor(b, client, func(c *luatx.Config) { c.OutboxCapacity, c.OutboxBytes = 1<<30, 1<<40 })
	body := make([]byte, 300)
	attrs := message.Attributes{"type": "t", "source": "/s", "datacontenttype": "application/octet-stream"}
	var next atomic.Int64
	b.SetParallelism((workers + 1) / 2)
	b.ReportAllocs()
	defer serverTime(b, client)()
	work := func() {
		aggregate := fmt.Sprint("a", next.Add(1)%int64(tags))
		if _, err := tr.Transact(ctx, aggregate, func(tx *luatx.Tx) error {
			hash, _ := tx.Key("hash")
			counter, _ := tx.Key("counter")
			tx.Pipeline().HSet(ctx, hash, "a", 1, "b", 2, "c", 3)
			if err := luatx.Queued(tx.Pipeline().Incr(ctx, counter)); err != nil {
				return err
			}
			return tx.Emit(luatx.Event{Data: body, Attributes: attrs})
		}); err != nil {
			b.Error(err)
		}
	}
	if workers == 1 {
		for b.Loop() {
			work()
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			work()
		}
	})
}

// serverTime reports the CPU time of the server per operation. On a busy machine, it is more meaningful than the elapsed time.
func serverTime(b *testing.B, client redis.UniversalClient) (report func()) {
	b.Helper()
	used := func() (seconds float64) {
		for line := range strings.Lines(client.Info(b.Context(), "cpu").Val()) {
			for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
				if value, ok := strings.CutPrefix(line, name); ok {
					n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
					seconds += n
				}
			}
		}
		return seconds
	}
	before := used()
	return func() { b.ReportMetric((used()-before)*1e6/float64(b.N), "server-µs/op") }
}

// The maximum number of allocations besides those of go-redis, for a transaction, and for a message in the scripted stack,
// including the message and its output.
const (
	maxAllocs        = 8
	maxMessageAllocs = 28
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
	s.args[1] = sha
	return s.args
}

// sentArgs is a hook that stores a copy of the arguments of the first EVALSHA.
type sentArgs struct{ args []any }

func (*sentArgs) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *sentArgs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.args == nil && cmd.Name() == "evalsha" {
			s.args = slices.Clone(cmd.Args())
			for i, arg := range s.args {
				switch v := arg.(type) {
				case *string:
					s.args[i] = *v
				case *int64:
					s.args[i] = *v
				}
			}
		}
		return next(ctx, cmd)
	}
}

func (*sentArgs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
