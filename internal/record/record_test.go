package record_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/record"
	"github.com/luatx/luatx/internal/test/assert"
)

var errExec = errors.New("exec")

// owner returns the results of a function, and keeps every command if it is nil.
type owner func(redis.Cmder) (bool, error)

func (o owner) Record(cmd redis.Cmder) (bool, error) {
	if o == nil {
		return true, nil
	}
	return o(cmd)
}

func (owner) Exec() error { return errExec }

func newRecorder(source *record.Source, o owner) *record.Recorder {
	var r record.Recorder
	source.Init(&r, o)
	return &r
}

func TestRecorderRecordsEachCommand(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	refused := errors.New("refused")
	r := newRecorder(record.NewSource(), func(cmd redis.Cmder) (bool, error) {
		if cmd.Name() == "get" {
			return false, refused
		}
		return true, nil
	})

	assert.Must(t, r.HSet(ctx, "h", "f", 1).Err())
	assert.Is(t, r.Get(ctx, "k").Err(), refused, "a refused command")
	if _, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "a")
		p.Do(ctx, "set", "b", 2)
		return nil
	}); err != nil {
		t.Errorf("a pipeline inside the recorder answers %v", err)
	}
	nested := r.Pipeline()
	nested.Get(ctx, "x")
	if cmds, err := nested.Exec(ctx); !errors.Is(err, refused) || !errors.Is(cmds[0].Err(), refused) {
		t.Errorf("a refused command in a pipeline answers %v", err)
	}
	if _, err := r.Exec(ctx); !errors.Is(err, errExec) {
		t.Errorf("Exec answers %v", err)
	}
	var names []string
	for _, cmd := range r.Cmds() {
		names = append(names, cmd.Name())
	}
	if got := strings.Join(names, " "); got != "hset incr set" || r.Len() != 3 {
		t.Errorf("recorded %q", got)
	}
	r.Discard()
	assert.Equal(t, r.Len(), 0, "commands after Discard")
}

func TestFillSetsTheResultsOfRecordedCommands(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	filler := record.NewFiller()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				r := newRecorder(record.NewSource(), nil)
				status := r.Set(ctx, "k", "v", 0)
				count := r.Incr(ctx, "n")
				exact := r.IncrBy(ctx, "n", 1)
				text := r.Get(ctx, "k")
				missing := r.Get(ctx, "no")
				score := r.ZScore(ctx, "z", "m")
				all := r.HGetAll(ctx, "h")
				some := r.HMGet(ctx, "h", "a", "b")
				generic := r.Do(ctx, "lrange", "l", 0, -1)
				stream := r.XRange(ctx, "s", "-", "+")
				failed := r.Incr(ctx, "bad")
				err := filler.Fill(r.Cmds(), []any{
					"OK", int64(7), "9007199254740993", "v\r\n", nil, "1.5",
					[]any{"a", "1"},
					[]any{"1", nil},
					[]any{"x", "y"},
					[]any{[]any{"1-1", []any{"f", "v"}}},
					errors.New("WRONGTYPE no\r\nsuch"),
				})
				if err != nil {
					t.Error(err)
					return
				}
				if status.Val() != "OK" || count.Val() != 7 || exact.Val() != 9007199254740993 || text.Val() != "v\r\n" ||
					!errors.Is(missing.Err(), redis.Nil) || score.Val() != 1.5 || all.Val()["a"] != "1" ||
					some.Val()[0] != "1" || some.Val()[1] != nil || len(generic.Val().([]any)) != 2 ||
					stream.Val()[0].Values["f"] != "v" || failed.Err() == nil {
					t.Errorf("filled: %v", r.Cmds())
				}
			}
		})
	}
	wg.Wait()
}

func TestFillSetsLargeResults(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	filler := record.NewFiller()
	r := newRecorder(record.NewSource(), nil)
	large := bytes.Repeat([]byte("x"), 1<<20)
	var replies []any
	for range 20 {
		r.Set(ctx, "k", large, 0)
		r.Get(ctx, "k")
		replies = append(replies, "OK", string(large))
	}
	assert.Must(t, filler.Fill(r.Cmds(), replies))
	last := r.Cmds()[39].(*redis.StringCmd)
	assert.Equal(t, len(last.Val()), len(large), "bytes that came back")
}

func TestFillRejectsAWrongNumberOfReplies(t *testing.T) {
	t.Parallel()
	r := newRecorder(record.NewSource(), nil)
	r.Get(context.Background(), "k")
	if err := record.NewFiller().Fill(r.Cmds(), nil); err == nil {
		t.Error("one command was filled by no reply")
	}
}

func BenchmarkRecordAndFill(b *testing.B) {
	ctx := context.Background()
	source, filler := record.NewSource(), record.NewFiller()
	b.ReportAllocs()
	for b.Loop() {
		r := newRecorder(source, nil)
		r.HSet(ctx, "h", "a", 1, "b", 2)
		r.Incr(ctx, "n")
		if err := filler.Fill(r.Cmds(), []any{int64(2), int64(1)}); err != nil {
			b.Fatal(err)
		}
	}
}
