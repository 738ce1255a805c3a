package eval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
)

// nodes is a client that finds nodes and their state like that of a cluster.
type nodes struct {
	*redis.Client

	node    *redis.Client
	err     error
	reloads []context.Context
}

func (n *nodes) MasterForKey(context.Context, string) (*redis.Client, error) { return n.node, n.err }

func (n *nodes) ReloadState(ctx context.Context) { n.reloads = append(n.reloads, ctx) }

func newNodes(t *testing.T, errs ...error) (*Runner, *nodes, *sick) {
	t.Helper()
	r, _, s := newSick(t, "fine", errs...)
	client, _ := r.client.(*redis.Client)
	n := &nodes{Client: client, node: client}
	return New(n, "n", slog.New(slog.DiscardHandler)), n, s
}

func TestPauseGrowsAndEndsAtItsMaximum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for try, least := range map[int]time.Duration{
			0: time.Millisecond, 1: 2 * time.Millisecond, 2: 4 * time.Millisecond, 7: 50 * time.Millisecond, 100: 50 * time.Millisecond,
		} {
			for range 1000 {
				began := time.Now()
				if waited := pause(t.Context(), try); !waited || time.Since(began) < least || time.Since(began) >= 2*least {
					t.Fatalf("attempt %d waits %v, want %v to %v", try, time.Since(began), least, 2*least)
				}
			}
		}
	})
}

func TestClusterIsLookedUpAgainAfterErrorsThatMayComeFromAnOldMaster(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{answer("READONLY You can't write against a read only replica."), 1},
		{answer("CLUSTERDOWN The cluster is down"), 1},
		{answer("MOVED 1 127.0.0.1:1"), 1},
		{answer("NOSCRIPT No matching script."), 1},
		{io.EOF, 1},
		{answer("TRYAGAIN"), 0},
		{answer("LOADING x"), 0},
		{answer("ERR no"), 0},
	} {
		r, n, _ := newNodes(t)
		r.reload(t.Context(), c.err)
		assert.Equal(t, len(n.reloads), c.want, "reloads after %v", c.err)
	}
}

func TestRetryReloadsTheClusterAndIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		r, n, s := newNodes(t, io.EOF, answer("LOADING x"))
		r.log = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
		began := time.Now()
		call := NewCall(r.Script("commit", "return 1"), []string{"k"}, nil)
		call.Until = time.Now().Add(time.Hour)
		r.evalAll(t.Context(), []*Call{call}, alone)
		assert.NoError(t, call.Failure, "the third attempt")
		assert.Equal(t, s.calls, 3, "attempts")
		assert.Equal(t, call.Batch, 1, "calls in the script")
		if took := time.Since(began); took < 3*time.Millisecond || took >= 6*time.Millisecond {
			t.Errorf("two pauses took %v", took)
		}
		for _, want := range []string{"try=1 requests=1 error=EOF", `try=2 requests=1 error="LOADING x"`} {
			if !strings.Contains(lines.String(), want) {
				t.Errorf("the log lacks %s:\n%s", want, &lines)
			}
		}
		assert.Equal(t, len(n.reloads), 1, "reloads")
		assert.Is(t, n.reloads[0].Err(), context.Canceled, "the context of the retries")
	})
}

func TestAskRetriesUntilTheNodeAnswers(t *testing.T) {
	t.Parallel()
	refused := answer("NOPERM no")
	for name, c := range map[string]struct {
		answers []error // the last one again and again
		master  error
		want    error
		failed  int // at least
		reloads int // at least
	}{
		"at once":          {answers: []error{nil}},
		"later":            {answers: []error{io.EOF, answer("LOADING x"), nil}, failed: 2, reloads: 1},
		"refused":          {answers: []error{refused}, want: refused},
		"refused later":    {answers: []error{io.EOF, refused}, want: refused, failed: 1, reloads: 1},
		"never":            {answers: []error{io.EOF}, want: io.EOF, failed: 20, reloads: 20},
		"without a master": {answers: []error{nil}, master: net.ErrClosed, want: net.ErrClosed, failed: 20, reloads: 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, n, _ := newNodes(t)
			n.err = c.master
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var failed []error
			var asked []time.Time
			answers := c.answers
			err := r.Ask(ctx, "k", func(err error) { failed = append(failed, err) }, func(_ context.Context, node redis.UniversalClient) error {
				if node != n.node {
					t.Errorf("%s: another node was asked", name)
				}
				asked = append(asked, time.Now())
				err := answers[0]
				answers = answers[min(1, len(answers)-1):]
				return err
			})
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%s: error %v, want %v", name, err, c.want)
			}
			if len(failed) != c.failed && (c.failed < 20 || len(failed) < c.failed) || len(n.reloads) != c.reloads && (c.reloads < 20 || len(n.reloads) < c.reloads) {
				t.Errorf("%s: %d failures, %d reloads", name, len(failed), len(n.reloads))
			}
			if len(asked) > 1 && asked[1].Sub(asked[0]) >= 2*time.Millisecond {
				t.Errorf("%s: the second attempt comes after %v", name, asked[1].Sub(asked[0]))
			}
		})
	}
}

func TestScriptMayReturnNil(t *testing.T) {
	t.Parallel()
	for _, err := range []error{redis.Nil, fmt.Errorf("hook: %w", redis.Nil)} {
		r, script, s := newSick(t, "fine", err)
		reply, err := r.Eval(t.Context(), script, []string{"k"}, nil)
		if reply != nil || err != nil || s.calls != 1 {
			t.Errorf("%v, %v after %d calls", reply, err, s.calls)
		}
	}
}

func TestSharedCallWithOneKeyReturnsItsReplyOrError(t *testing.T) {
	t.Parallel()
	r, script, _ := newSick(t, "fine", answer("NOPERM no"))
	if reply, err := r.EvalShared(t.Context(), script, []string{"k"}, nil); reply != nil || !isServerError(err) {
		t.Errorf("refused: %v, %v", reply, err)
	}
	if reply, err := r.EvalShared(t.Context(), script, []string{"k"}, nil); reply != "fine" || err != nil {
		t.Errorf("%v, %v", reply, err)
	}
}

func TestCallWhoseContextHasEndedIsNotSent(t *testing.T) {
	t.Parallel()
	r, script, s := newSick(t, "fine")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Eval(ctx, script, []string{"k"}, nil); !errors.Is(err, context.Canceled) || err.Error() != "context canceled" {
		t.Errorf("error %v", err)
	}
	assert.Equal(t, s.calls, 0, "requests")
	late := &Call{Failure: context.DeadlineExceeded}
	giveUp(lateContext{context.Background()}, []*Call{late})
	assert.Equal(t, late.Failure.Error(), "context deadline exceeded", "the only reason")
}

func TestScriptIsNotSentAgainIfItsNodeIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n, s := newNodes(t, slices.Repeat([]error{answer("NOSCRIPT No matching script.")}, 1000)...)
		n.err = net.ErrClosed
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Eval(ctx, r.Script("commit", "return 1"), []string{"k"}, nil); !errors.Is(err, net.ErrClosed) || errors.Is(err, ErrUnknown) {
			t.Errorf("error %v", err)
		}
		if tries := len(n.reloads); tries == 0 || s.calls > tries+1 {
			t.Errorf("%d requests in %d attempts", s.calls, tries)
		}
	})
}

func TestLoadReturnsTheErrorOfAnyScript(t *testing.T) {
	t.Parallel()
	r, _, s := newSick(t, "fine")
	r.Script("second", "return 2")
	assert.Must(t, r.Load(t.Context()))
	assert.Equal(t, s.loaded, 2, "loaded scripts")
	s.refusesScripts = answer("NOPERM no")
	if err := r.Load(t.Context()); !isServerError(err) || s.loaded != 3 {
		t.Errorf("error %v after %d scripts", err, s.loaded)
	}
}

// recorder is a hook that records the context of each round trip.
type recorder struct {
	mu   sync.Mutex
	seen []context.Context
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, _ redis.Cmder) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, ctx)
		return nil
	}
}

func (r *recorder) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, _ []redis.Cmder) error { return r.ProcessHook(nil)(ctx, nil) }
}

func TestContextOfARoundTripEndsWithIt(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(ctx context.Context, r *Runner, call func() *Call){
		"alone":    func(ctx context.Context, r *Runner, call func() *Call) { r.Send(ctx, []*Call{call()}) },
		"a flight": func(ctx context.Context, r *Runner, call func() *Call) { r.Send(ctx, []*Call{call(), call()}) },
		"with the tail": func(ctx context.Context, r *Runner, call func() *Call) {
			r.Send(ctx, []*Call{call()}, redis.NewCmd(ctx, "get", "k"))
		},
		"a wake-up": func(_ context.Context, r *Runner, _ func() *Call) { r.Wake(0) },
	} {
		synctest.Test(t, func(t *testing.T) {
			hook := &recorder{}
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
			defer func() { _ = client.Close() }()
			client.AddHook(hook)
			r := New(client, "n", slog.New(slog.DiscardHandler))
			send(t.Context(), r, func() *Call {
				c := NewCall(r.Script("commit", "return 1"), []string{"k"}, nil)
				c.Load, c.Until = single{c.Script, c.Argv}, time.Now().Add(time.Hour)
				return c
			})
			synctest.Wait()
			if len(hook.seen) != 1 || !errors.Is(hook.seen[0].Err(), context.Canceled) {
				t.Errorf("%s: %d round trips, and their contexts %v", name, len(hook.seen), hook.seen)
			}
		})
	}
}
