package script

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is an error that a server sends.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// sick is a hook that plays a server: it answers EVALSHA with one error after the other, then with a reply.
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

func newSick(t *testing.T, reply any, errs ...error) (*Set, *sick) {
	t.Helper()
	s := &sick{errs: errs, reply: reply}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	client.AddHook(s)
	t.Cleanup(func() { _ = client.Close() })
	return New(client, Constants{Namespace: "n", Identity: "i"}, slog.New(slog.DiscardHandler)), s
}

// TestEvalSurvives holds what is tried again, what is not, and when the outcome is open.
func TestEvalSurvives(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		errs       []error
		calls      int
		unanswered bool
		check      func(error) bool
	}{
		"at once":     {nil, 1, false, nil},
		"no script":   {[]error{answer("NOSCRIPT No matching script.")}, 2, false, nil},
		"passing":     {[]error{answer("TRYAGAIN"), answer("CLUSTERDOWN"), answer("LOADING x"), answer("BUSY x"), answer("MASTERDOWN x"), answer("READONLY x"), answer("MOVED 1 x"), answer("ERR max number of clients reached")}, 9, false, nil},
		"not sent":    {[]error{refused, redis.ErrPoolTimeout}, 3, false, nil},
		"unanswered":  {[]error{io.EOF, refused}, 3, true, nil},
		"refused":     {[]error{answer("NOPERM no")}, 1, false, isServerError},
		"never sent":  {[]error{refused, errForEver}, 0, true, func(err error) bool { return errors.Is(err, ErrUnknown) }},
		"no more try": {slices.Repeat([]error{refused}, 1000), 0, false, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnknown) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, server := newSick(t, "fine", c.errs...)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if c.calls == 0 { // until the deadline
				ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
			}
			r := newRequest(&set.commit, 1, 0)
			r.argv = append(r.argv, "k")
			set.evalAll(ctx, []*request{&r}, alone)
			unanswered, err := r.unanswered, r.err
			var reply any
			if err == nil {
				reply = r.flight.call.reply
			}
			if c.check == nil && (err != nil || reply != "fine") || c.check != nil && !c.check(err) {
				t.Errorf("%v, %v", reply, err)
			}
			if unanswered != c.unanswered {
				t.Errorf("unanswered is %t", unanswered)
			}
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

// TestEvalOfAScriptThatCannotBeLoaded holds that there is nothing to wait for.
func TestEvalOfAScriptThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	set, server := newSick(t, "fine", answer("NOSCRIPT No matching script."))
	server.refusesScripts = answer("NOPERM no SCRIPT LOAD for you")
	if _, err := set.eval(t.Context(), &set.commit, []string{"k"}, nil); !isServerError(err) {
		t.Errorf("error %v", err)
	}
}

// TestMalformedReplies holds that a reply which no script gives is an error.
func TestMalformedReplies(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{
		nil, "text", int64(1),
		[]any{},
		[]any{"3"},
		[]any{"x", int64(2), "committed", int64(0)},
		[]any{"1", "committed"},
		[]any{"1", int64(0)},
		[]any{"1", int64(-1), "committed"},
		[]any{"1", int64(3), "committed", int64(0)},
		[]any{"1", int64(1), "nosuch"},
		[]any{"1", int64(1), "committed"},
		[]any{"1", int64(2), "failed", int64(1)},
	} {
		set, _ := newSick(t, reply)
		shard := set.Shard(0)
		if out, _, _, err := set.Commit(t.Context(), shard, []Tx{{}}); err == nil {
			t.Errorf("commit %v: %+v", reply, out)
		}
		if _, err := set.Settle(t.Context(), shard, Settling{}, make([]Settlement, 3)); err == nil {
			t.Errorf("settle %v", reply)
		}
		if claim, err := set.Claim(t.Context(), shard, Claiming{Limit: 1, Lease: time.Second, Attempts: 1}); err == nil {
			t.Errorf("claim %v: %+v", reply, claim)
		}
	}
	set, _ := newSick(t, []any{"1", "identity", "another"})
	if _, err := set.Claim(t.Context(), set.Shard(0), Claiming{Limit: 1, Lease: time.Second, Attempts: 1}); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("a claim on another's shard: %v", err)
	}
}

// TestForeignShardAnswersAll holds that everybody who shares a script hears the one answer of a shard of another keyspace.
func TestForeignShardAnswersAll(t *testing.T) {
	t.Parallel()
	set, _ := newSick(t, []any{"1", int64(2), "identity", "another"})
	outcomes, _, _, err := set.Commit(t.Context(), set.Shard(0), make([]Tx, 3))
	if err != nil {
		t.Fatal(err)
	}
	for i, out := range outcomes {
		if out.State != Identity || out.Text != "another" {
			t.Errorf("transaction %d: %+v", i, out)
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("luatx 1, namespace n, own tags")
	f.Add("'\\\n\x00\xff]]")
	f.Fuzz(func(t *testing.T, s string) {
		quoted := quote(s)
		if quoted[0] != '\'' || quoted[len(quoted)-1] != '\'' || strings.ContainsAny(quoted[1:len(quoted)-1], "'\n\r") {
			t.Errorf("%q is no Lua string: %s", s, quoted)
		}
	})
}

// elsewhere are the scripts that other packages run by themselves: inbox.SetNX, internal/rekey, stream and admin.
var elsewhere = []string{
	"release.lua", "drop.lua", "deadletter.lua", "dismiss.lua", "fetch.lua", "hold.lua", "putback.lua", "trim.lua",
	"lease.lua", "members.lua", "partition.lua", "dead.lua", "acknowledge.lua",
}

// TestScriptsAreComplete holds that every script of the directory is built and listed.
func TestScriptsAreComplete(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../lua/[a-z]*.lua")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(name string) bool { return slices.Contains(elsewhere, filepath.Base(name)) })
	set, _ := newSick(t, nil)
	if len(set.all()) != len(files) {
		t.Errorf("%d scripts are built of %d", len(set.all()), len(files))
	}
	for _, script := range set.all() {
		if strings.Contains(script.text, "no script ") || len(script.sha) != 40 {
			t.Errorf("script %s: %.80s", script.name, script.text)
		}
	}
}

// lateContext is a context past its deadline whose goroutine has not run yet, as on a busy machine.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestPauseEndsAtTheDeadlineOfAContextThatIsNotDoneYet(t *testing.T) {
	t.Parallel()
	ctx := lateContext{context.Background()}
	if pause(ctx, 0) {
		t.Error("a request that its caller left in flight would be sent again")
	}
	r := &request{err: io.EOF}
	giveUp(ctx, []*request{r})
	if !errors.Is(r.err, context.DeadlineExceeded) || !errors.Is(r.err, io.EOF) {
		t.Errorf("error %v, want the deadline and the last error", r.err)
	}
}
