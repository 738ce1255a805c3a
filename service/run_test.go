package service

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/child"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func nothing(context.Context, struct{}) ([]any, error) { return nil, nil }

func timers(*message.Message) expiry.WorkerConfig {
	return expiry.WorkerConfig{Event: func(context.Context, expiry.Timer) (*message.Message, error) { return nil, nil }}
}

// offline returns a client that reaches no server.
func offline(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("offline") }})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// diary notes what happens, in order.
type diary struct {
	mu   sync.Mutex
	text []string
}

func (d *diary) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text = append(d.text, text)
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.text, want) {
		t.Errorf("this happened: %q, want %q", d.text, want)
	}
}

// runner notes its start and its end, which takes a while.
func (d *diary) runner(name string, takes time.Duration) RunFunc {
	return func(ctx context.Context) error {
		d.note(name + " starts")
		<-ctx.Done()
		<-time.After(takes)
		d.note(name + " ends")
		return nil
	}
}

type inputFunc func(ctx context.Context, p stream.Processor) error

func (f inputFunc) Consume(ctx context.Context, _ *luatx.Transactor, p stream.Processor) error {
	return f(ctx, p)
}

// other returns a service in mode Other of an input and a relay.
func other(t *testing.T, cfg Config, input inputFunc, relay RunFunc) *Service {
	t.Helper()
	cfg.Mode, cfg.Given.Input, cfg.Given.Relay = Other, input, relay
	cfg.Given.Middleware = new(message.Middleware)
	*cfg.Given.Middleware = message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc { return next })
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := New(nil, cfg, Command("h", nothing))
	assert.Must(t, err)
	return s
}

// run runs the service until stop, which returns the error of Run.
func run(t *testing.T, s *Service) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestRunStopsTheRelayAfterTheInputHasFinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		s := other(t, Config{}, func(ctx context.Context, _ stream.Processor) error { return d.runner("input", time.Second)(ctx) }, d.runner("relay", time.Second))
		stop := run(t, s)
		synctest.Wait()
		assert.NoError(t, stop(), "Run")
		d.mu.Lock()
		slices.Sort(d.text[:2]) // they start side by side
		d.mu.Unlock()
		d.want(t, "input starts", "relay starts", "input ends", "relay ends")
		assert.ErrorContains(t, s.Run(t.Context()), "has already run", "Run again")
	})
}

// lateSubscriber cannot subscribe before its context ends.
type lateSubscriber struct{}

func (lateSubscriber) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestServiceThatStopsBeforeItsInputHasBegunReturnsNil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		input := Subscription{Subscriber: lateSubscriber{}}
		s := other(t, Config{}, func(ctx context.Context, p stream.Processor) error { return input.Consume(ctx, nil, p) }, (&diary{}).runner("relay", 0))
		stop := run(t, s)
		synctest.Wait()
		assert.NoError(t, stop(), "Run")
	})
}

func TestRunStopsTheRelayAlsoIfAHandlerHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, release := &diary{}, make(chan struct{})
		s := other(t, Config{ShutdownTimeout: 8 * time.Second}, func(context.Context, stream.Processor) error { <-release; return nil }, d.runner("relay", 0))
		stop := run(t, s)
		synctest.Wait()
		began := time.Now()
		err := stop()
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("Run took %v to return, want three quarters of ShutdownTimeout and no time for the relay", took)
		}
		hangs, is := errors.AsType[*StopError](err)
		if !is || !slices.Equal(hangs.Pieces, []string{"input"}) {
			t.Errorf("Run returned %v, want a StopError of the input", err)
		}
		d.want(t, "relay starts", "relay ends")
		close(release)
		synctest.Wait()
	})
}

func TestRunReturnsWithinShutdownTimeoutIfEverythingHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hang := func(context.Context) error { <-release; return nil }
		s := other(t, Config{ShutdownTimeout: 8 * time.Second}, func(ctx context.Context, _ stream.Processor) error { return hang(ctx) }, hang)
		stop := run(t, s)
		synctest.Wait()
		began := time.Now()
		err := stop()
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("Run took %v to return, want at most 8 s", took)
		}
		assert.ErrorContains(t, err, "still running: input, relay", "Run")
		close(release)
		synctest.Wait()
	})
}

func TestRunReturnsTheErrorOfAPieceAndStopsTheOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		relay RunFunc
		want  string
	}{
		"fails": {func(context.Context) error { return errors.New("broken") }, "service: relay: broken"},
		"ends":  {func(context.Context) error { return nil }, "service: relay ended before its context"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &diary{}
			s := other(t, Config{}, func(ctx context.Context, _ stream.Processor) error { return d.runner("input", 0)(ctx) }, test.relay)
			assert.ErrorContains(t, s.Run(t.Context()), test.want, "Run")
			assert.ErrorContains(t, s.Health(), test.want, "Health")
			d.want(t, "input starts", "input ends")
		})
	}
}

func TestReadyReportsWhetherTheServiceWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("server down")
		var now error
		release := make(chan struct{})
		cfg := Config{Given: Given{Check: func(context.Context) error { return now }}}
		s := other(t, cfg, func(ctx context.Context, _ stream.Processor) error { <-ctx.Done(); <-release; return nil }, (&diary{}).runner("relay", 0))
		assert.Is(t, s.Ready(t.Context()), ErrStarting, "Ready before Run")
		wantStatus(t, s, "/livez", 200, "live\n")
		wantStatus(t, s, "/readyz", 503, "not ready\n")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		assert.NoError(t, s.Ready(t.Context()), "Ready")
		wantStatus(t, s, "/readyz", 200, "ready\n")
		now = down
		assert.Is(t, s.Ready(t.Context()), down, "Ready without a server")
		assert.NoError(t, s.Health(), "Health without a server")
		now = nil
		cancel()
		synctest.Wait()
		assert.Is(t, s.Ready(t.Context()), ErrStopping, "Ready while a handler finishes")
		close(release)
		assert.NoError(t, <-ended, "Run")
		wantStatus(t, s, "/else", 404, "404 page not found\n")
	})
}

func wantStatus(t *testing.T, s *Service, path string, status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code != status || w.Body.String() != body {
		t.Errorf("GET %s: %d %q, want %d %q", path, w.Code, w.Body.String(), status, body)
	}
}

func TestAddrServesUntilTheOtherPiecesHaveStopped(t *testing.T) {
	t.Parallel()
	port, err := child.FreePort()
	assert.Must(t, err)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // a connection that Run has closed is not tried again
	started, last := make(chan struct{}), make(chan string, 1)
	get := func() string {
		resp, err := client.Get("http://" + addr + "/readyz")
		if err != nil {
			return err.Error()
		}
		body, err := io.ReadAll(resp.Body)
		return strings.TrimSpace(string(body)) + errorText(errors.Join(err, resp.Body.Close()))
	}
	s := other(t, Config{Addr: addr}, func(ctx context.Context, _ stream.Processor) error {
		close(started)
		<-ctx.Done()
		return nil
	}, func(ctx context.Context) error {
		<-ctx.Done()
		last <- get() // the input has ended
		return nil
	})
	stop := run(t, s)
	<-started
	for strings.Contains(get(), "refused") { // the server begins to listen beside the input
		runtime.Gosched()
	}
	assert.NoError(t, stop(), "Run")
	if got := <-last; got != "not ready" {
		t.Errorf("GET /readyz while the relay stops: %q, want \"not ready\"", got)
	}
	// A process that another test starts has the socket until it executes its program.
	redistest.Eventually(t, "no connection after Run", func() bool { return strings.Contains(get(), "refused") })
}

func TestServerOfAddrDisconnectsClientsThatStall(t *testing.T) {
	t.Parallel()
	for _, admin := range []*httpapi.Config{nil, {Timeout: 5 * time.Minute}} {
		s := &Service{cfg: Config{Admin: admin}}
		server, timeout := s.server(), time.Second
		if admin != nil {
			timeout = admin.Timeout
		}
		if server.Handler != s || server.ReadHeaderTimeout <= 0 || server.ReadTimeout <= timeout || server.WriteTimeout <= timeout || server.IdleTimeout <= 0 {
			t.Errorf("timeouts with Admin %+v: header %v, read %v, write %v, idle %v; want all, and the read and write ones longer than %v",
				admin, server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout, server.IdleTimeout, timeout)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// channel is a subscriber of messages that are there already.
type channel chan *message.RawMessage

func (c channel) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	context.AfterFunc(ctx, func() { close(c) })
	return c, nil
}

func TestSubscriptionLetsHandlersFinishAndThenEndsTheirContexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		messages := make(channel, 2)
		messages <- message.NewRaw(nil, message.Attributes{"id": "quick"}, nil)
		messages <- message.NewRaw(nil, message.Attributes{"id": "hangs"}, nil)
		d := &diary{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			sub := Subscription{Subscriber: messages, ShutdownTimeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)}
			ended <- sub.Consume(ctx, nil, stream.ProcessFunc(func(ctx context.Context, msg *message.RawMessage) error {
				if msg.ID() == "hangs" {
					<-ctx.Done()
				} else {
					time.Sleep(time.Second)
				}
				d.note(msg.ID() + errorText(ctx.Err()))
				return nil
			}))
		}()
		synctest.Wait()
		began := time.Now()
		stop()
		assert.NoError(t, <-ended, "Consume")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("Consume took %v to return, want 3 s", took)
		}
		d.want(t, "quick", "hangscontext canceled")
	})
	assert.ErrorContains(t, Subscription{}.Consume(t.Context(), nil, nil), "Subscription.Subscriber is nil", "Consume")
}

func TestPiecesThatEndAtOnceAreNotLeft(t *testing.T) {
	t.Parallel()
	s := &stage{pieces: make([]piece, 1000)}
	for i := range s.pieces {
		s.pieces[i] = piece{strconv.Itoa(i), func(context.Context) error { return nil }}
	}
	s.start(t.Context(), func(error) {})
	<-s.ended
	if left := s.left(); len(left) > 0 {
		t.Errorf("%d pieces are left, such as %s", len(left), left[0])
	}
}
