package trigger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

// said has all log output of go-redis in this process.
var said clientLog

type clientLog struct{ rig.Lines }

// Printf implements the logger interface of go-redis.
func (l *clientLog) Printf(_ context.Context, format string, v ...any) {
	fmt.Fprintf(l, format+"\n", v...)
}

func TestMain(m *testing.M) {
	redis.SetLogger(&said)
	redistest.Main(m)
}

// verifying reports whether tests may take long.
func verifying() bool { return os.Getenv("LUATX_VERIFY") != "" }

// effects records the calls of functions, by entry or by payload.
type effects struct {
	mu  sync.Mutex
	all []string
}

func (e *effects) add(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, what)
}

func (e *effects) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// of returns a function that records the text of each payload.
func (e *effects) of(t testing.TB) trigger.Func {
	t.Helper()
	return func(_ context.Context, msg *message.RawMessage) error {
		e.add(text(t, msg))
		return nil
	}
}

// has reports whether there are at least n effects.
func (e *effects) has(n int) func() bool { return func() bool { return len(e.list()) >= n } }

func payload(t testing.TB, msg *message.RawMessage) (p trigger.Payload) {
	t.Helper()
	if err := json.Unmarshal(msg.Data, &p); err != nil {
		t.Error(err)
	}
	return p
}

// text returns the payload of a message as text.
func text(t testing.TB, msg *message.RawMessage) string {
	t.Helper()
	p := payload(t, msg)
	if p.Body == nil || p.Body.Text == nil {
		return ""
	}
	return *p.Body.Text
}

// started is a running trigger.
type started struct {
	*trigger.Runtime
	log  *rig.Lines
	stop func() // and waits for the end, which must be without an error
}

// begin runs a trigger until the end of the test, and waits until it receives.
func begin(t testing.TB, cfg trigger.Config) *started {
	t.Helper()
	s := start(t, cfg)
	redistest.Eventually(t, "the trigger to begin", func() bool { return s.Health().State != trigger.Initializing })
	if h := s.Health(); h.State == trigger.BuildFailed {
		t.Fatal(h.LastError)
	}
	return s
}

func start(t testing.TB, cfg trigger.Config) *started {
	t.Helper()
	s := &started{log: &rig.Lines{}}
	if cfg.Function == "" {
		cfg.Function = "f"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if cfg.Mode == trigger.ModeStream && cfg.BlockTimeout == 0 {
		cfg.BlockTimeout = 50 * time.Millisecond
	}
	s.Runtime = trigger.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && s.Health().State != trigger.BuildFailed {
			t.Errorf("the trigger ended with %v", err)
		}
		if h := s.Health(); !h.State.Final() {
			t.Errorf("ended as %+v", h)
		}
	})
	t.Cleanup(func() {
		s.stop()
		for line := range strings.Lines(s.log.String()) {
			about := strings.Contains(line, " stream=") || strings.Contains(line, " channels=")
			said := strings.Contains(line, ` msg="trigger: `) || strings.Contains(line, ` msg="luatx: `)
			if !strings.Contains(line, " mode=") || !strings.Contains(line, " function=") || !about || !said {
				t.Errorf("a line does not name mode, function, and stream or channels: %s", line)
			}
		}
		if t.Failed() {
			t.Logf("log of the trigger:\n%s", s.log)
		}
	})
	return s
}

// stream returns a stream for one test.
type stream struct {
	t      testing.TB
	client redis.UniversalClient
	key    string
}

func newStream(t testing.TB, client redis.UniversalClient) *stream {
	t.Helper()
	return &stream{t, client, "{" + redistest.Tag(t) + "}:orders"}
}

// config returns the config of a trigger of group g on the stream.
func (s *stream) config(run trigger.Func) trigger.Config {
	return trigger.Config{
		Run: run, Connector: trigger.Connector{Client: s.client}, Mode: trigger.ModeStream, Stream: s.key, Group: "g",
		Retry: trigger.Retry{Entry: message.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond}},
	}
}

// add adds entries whose data are the numbers from a to b.
func (s *stream) add(from, to int) {
	s.t.Helper()
	for n := from; n <= to; n++ {
		s.addText(fmt.Sprint(n))
	}
}

func (s *stream) addText(data string) {
	s.t.Helper()
	redistest.Must(s.t, s.client.XAdd(s.t.Context(), &redis.XAddArgs{Stream: s.key, Values: []any{"data", data}}).Err())
}

func (s *stream) pending() int64 {
	s.t.Helper()
	pending, err := s.client.XPending(s.t.Context(), s.key, "g").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	if pending == nil {
		return 0
	}
	return pending.Count
}

// wantDone waits until no entry is pending.
func (s *stream) wantDone() {
	s.t.Helper()
	redistest.Eventually(s.t, "nothing to be pending", func() bool { return s.pending() == 0 })
}

// numbers returns the numbers from a to b as text.
func numbers(from, to int) (texts []string) {
	for n := from; n <= to; n++ {
		texts = append(texts, fmt.Sprint(n))
	}
	return texts
}

func wantEffects(t testing.TB, e *effects, want []string) {
	t.Helper()
	redistest.Eventually(t, fmt.Sprintf("%d effects", len(want)), e.has(len(want)))
	if got := e.list(); !slices.Equal(got, want) {
		t.Errorf("effects %v, want %v", got, want)
	}
}
