package eval

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is an error that a server sends.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// sick is a hook that simulates a server. It returns one error after the other for EVALSHA, and then a reply.
type sick struct {
	mu     sync.Mutex
	errs   []error
	reply  any
	calls  int
	loaded int

	refusesScripts error
}

func (s *sick) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *sick) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *sick) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if cmd.Name() == "script" {
			s.loaded++
			return s.refusesScripts
		}
		s.calls++
		if len(s.errs) > 0 {
			err := s.errs[0]
			if len(s.errs) > 1 || err != errForEver { //nolint:errorlint // it is that very value
				s.errs = s.errs[1:]
			}
			return err
		}
		if c, ok := cmd.(once); ok {
			c.SetVal(s.reply)
		}
		return nil
	}
}

var errForEver = net.ErrClosed

func newSick(t *testing.T, reply any, errs ...error) (*Runner, *Script, *sick) {
	t.Helper()
	s := &sick{errs: errs, reply: reply}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	client.AddHook(s)
	t.Cleanup(func() { _ = client.Close() })
	r := New(client, "n", slog.New(slog.DiscardHandler))
	return r, r.Script("commit", "return 1"), s
}

func TestEvalRetriesTemporaryErrorsAndReturnsOthers(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	broken := &net.OpError{Op: "write", Err: syscall.EPIPE} // the server may have read the request before the error
	for name, c := range map[string]struct {
		errs       []error
		calls      int
		unanswered bool
		check      func(error) bool
	}{
		"at once":     {nil, 1, false, nil},
		"no script":   {[]error{answer("NOSCRIPT No matching script.")}, 2, false, nil},
		"passing":     {[]error{answer("TRYAGAIN"), answer("CLUSTERDOWN"), answer("LOADING x"), answer("BUSY x"), answer("MASTERDOWN x"), answer("READONLY x"), answer("MOVED 1 x"), answer("ASK 1 x"), answer("ERR Error running script: -READONLY x"), answer("ERR max number of clients reached")}, 11, false, nil},
		"not sent":    {[]error{refused, redis.ErrPoolTimeout, redis.ErrPoolExhausted, redis.ErrClosed}, 5, false, nil},
		"unanswered":  {[]error{io.EOF, refused}, 3, true, nil},
		"written":     {[]error{broken, refused}, 3, true, nil},
		"refused":     {[]error{answer("NOPERM no")}, 1, false, isServerError},
		"never sent":  {[]error{refused, errForEver}, 0, true, func(err error) bool { return errors.Is(err, ErrUnknown) }},
		"no more try": {slices.Repeat([]error{refused}, 1000), 0, false, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnknown) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runner, script, server := newSick(t, "fine", c.errs...)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if c.calls == 0 { // until the deadline
				ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
			}
			call := NewCall(script, []string{"k"}, nil)
			runner.evalAll(ctx, []*Call{call}, alone)
			unanswered, err := call.Unanswered, call.Failure
			var reply any
			if err == nil {
				reply, _ = call.Reply()
			}
			if c.check == nil && (err != nil || reply != "fine") || c.check != nil && !c.check(err) {
				t.Errorf("%v, %v", reply, err)
			}
			assert.Equal(t, unanswered, c.unanswered, "unanswered")
			if c.calls > 0 && server.calls != c.calls {
				t.Errorf("%d calls, want %d", server.calls, c.calls)
			}
			if name == "no script" && server.loaded != 1 {
				t.Errorf("the script was loaded %d times", server.loaded)
			}
		})
	}
}

func isServerError(err error) bool {
	refused, ok := errors.AsType[*ServerError](err)
	return ok && refused.Script == "commit" && strings.Contains(err.Error(), "NOPERM")
}

func TestEvalDoesNotWaitIfTheScriptMayNotBeLoaded(t *testing.T) {
	t.Parallel()
	runner, script, server := newSick(t, "fine", answer("NOSCRIPT No matching script."))
	server.refusesScripts = answer("NOPERM no SCRIPT LOAD for you")
	if _, err := runner.Eval(t.Context(), script, []string{"k"}, nil); !isServerError(err) {
		t.Errorf("error %v", err)
	}
}

// lateContext is a context whose deadline has passed and whose goroutine has not run yet, as on a busy machine.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestPauseEndsAtTheDeadlineOfAContextThatIsNotDoneYet(t *testing.T) {
	t.Parallel()
	ctx := lateContext{context.Background()}
	if pause(ctx, 0) {
		t.Error("a request that its caller left in flight would be sent again")
	}
	c := &Call{Failure: io.EOF}
	giveUp(ctx, []*Call{c})
	if !errors.Is(c.Failure, context.DeadlineExceeded) || !errors.Is(c.Failure, io.EOF) {
		t.Errorf("error %v, want the deadline and the last error", c.Failure)
	}
}

// Servers older than 7.2 have no WAITAOF, so the test uses fixed replies.
func TestReachedNeedsEveryCopyThatWasAskedFor(t *testing.T) {
	t.Parallel()
	aof := func(local, replicas int64) []any { return []any{local, replicas} }
	for _, c := range []struct {
		name  string
		d     Durability
		reply any
		want  bool
	}{
		{"enough replicas", Durability{Replicas: 2}, int64(2), true},
		{"more replicas", Durability{Replicas: 2}, int64(3), true},
		{"too few replicas", Durability{Replicas: 2}, int64(1), false},
		{"no reply", Durability{Replicas: 1}, nil, false},
		{"on the master's disk", Durability{Fsync: true}, aof(1, 0), true},
		{"not on the master's disk", Durability{Fsync: true}, aof(0, 0), false},
		{"on the disks of all", Durability{Fsync: true, Replicas: 1}, aof(1, 1), true},
		{"on the disks of replicas only", Durability{Fsync: true, Replicas: 1}, aof(0, 2), false},
		{"on the disks of too few replicas", Durability{Fsync: true, Replicas: 2}, aof(1, 1), false},
		{"no reply about disks", Durability{Fsync: true}, nil, false},
		{"half a reply about disks", Durability{Fsync: true}, []any{int64(1)}, false},
	} {
		assert.Equal(t, c.d.reached(c.reply), c.want, "%s", c.name)
	}
}

// refused is a hook whose pipelines fail without an error of their commands, as those of a client with a wrong password.
type refused struct{ sick }

func (*refused) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return answer("WRONGPASS invalid username-password pair") }
}

func TestCallOfAPipelineThatIsNotSentHasItsError(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(&refused{})
	r := New(client, "n", slog.New(slog.DiscardHandler))
	c := NewCall(r.Script("commit", "return 1"), []string{"k"}, nil)
	c.Ahead = [][]any{{"set", "k", "v"}}
	if reply, err := r.Once(t.Context(), c); reply != nil || !redis.HasErrorPrefix(errors.Unwrap(err), "WRONGPASS") {
		t.Errorf("reply %v, error %v", reply, err)
	}
}
