package message_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

type handleFunc = func(context.Context, *message.Message) ([]*message.Message, error)

// handler returns a Handler for every type.
func handler(fn handleFunc) message.Handler { return message.NewHandler(fn) }

// newRouter returns a Router with one handler.
func newRouter(t *testing.T, cfg message.PipeConfig, fn handleFunc, mw ...message.Middleware) *message.Router {
	t.Helper()
	r := message.NewRouter(cfg)
	must(t, r.Use(mw...))
	must(t, r.AddHandler("h", nil, handler(fn)))
	return r
}

func returns(outs []*message.Message, err error) handleFunc {
	return func(context.Context, *message.Message) ([]*message.Message, error) { return outs, err }
}

// around records when a middleware begins and ends.
func around(j *journal, name string) message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			j.add(name + " begins")
			defer j.add(name + " ends")
			return next(ctx, msg)
		}
	})
}

func TestMessageIsAckedAfterEveryMiddleware(t *testing.T) {
	t.Parallel()
	var j journal
	r := newRouter(t, message.PipeConfig{}, func(context.Context, *message.Message) ([]*message.Message, error) {
		j.add("handler")
		return nil, nil
	}, around(&j, "outer"), around(&j, "inner"))
	if _, err := r.Process(t.Context(), message.New(nil, nil, j.acking())); err != nil {
		t.Fatal(err)
	}
	j.want(t, "outer begins", "inner begins", "handler", "inner ends", "outer ends", "ack", "settled")
}

func TestFailedCommitNacksUnderEveryAckStrategy(t *testing.T) {
	t.Parallel()
	for _, strategy := range []message.AckStrategy{message.AckOnSuccess, message.AckForward, message.AckManual} {
		var j journal
		commit := message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
			return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
				outs, _ := next(ctx, msg)
				return outs, errBoom
			}
		})
		r := newRouter(t, message.PipeConfig{AckStrategy: strategy}, returns([]*message.Message{message.New(1, nil, nil)}, nil), commit)
		outs, err := r.Process(t.Context(), message.New(nil, nil, j.acking()))
		if !errors.Is(err, errBoom) || outs != nil {
			t.Errorf("%v: %v, %v", strategy, outs, err)
		}
		j.want(t, "nack boom", "settled")
	}
}

func TestProcessSettlesByTheAckStrategy(t *testing.T) {
	t.Parallel()
	panics := func(context.Context, *message.Message) ([]*message.Message, error) { panic(errBoom) }
	settles := func(how func(*message.Message) bool, err error) handleFunc {
		return func(_ context.Context, msg *message.Message) ([]*message.Message, error) {
			how(msg)
			return nil, err
		}
	}
	cases := []struct {
		name     string
		strategy message.AckStrategy
		fn       handleFunc
		told     []string
		err      error
	}{
		{"success", message.AckOnSuccess, returns(nil, nil), []string{"ack", "settled"}, nil},
		{"error", message.AckOnSuccess, returns(nil, errBoom), []string{"nack boom", "settled"}, errBoom},
		{"panic", message.AckOnSuccess, panics, []string{"nack message: panic: boom", "settled"}, errBoom},
		{"nil output", message.AckOnSuccess, returns([]*message.Message{nil}, nil), []string{"nack message: the handler returned a nil message", "settled"}, nil},
		{"acknowledged inside", message.AckOnSuccess, settles((*message.Message).Acknowledged, nil), []string{"settled"}, nil},
		{"released inside", message.AckOnSuccess, settles((*message.Message).Release, errBoom), []string{"settled"}, errBoom},
		{"manual success", message.AckManual, returns(nil, nil), nil, nil},
		{"manual ack", message.AckManual, settles((*message.Message).Ack, nil), []string{"ack", "settled"}, nil},
		{"manual ack and error", message.AckManual, settles((*message.Message).Ack, errBoom), []string{"ack", "settled"}, errBoom},
		{"manual error", message.AckManual, returns(nil, errBoom), []string{"nack boom", "settled"}, errBoom},
		{"manual panic", message.AckManual, panics, []string{"nack message: panic: boom", "settled"}, errBoom},
		{"forward nothing", message.AckForward, returns(nil, nil), []string{"ack", "settled"}, nil},
		{"forward error", message.AckForward, returns(nil, errBoom), []string{"nack boom", "settled"}, errBoom},
		{"forward panic", message.AckForward, panics, []string{"nack message: panic: boom", "settled"}, errBoom},
		{"forward something", message.AckForward, returns([]*message.Message{message.New(1, nil, nil)}, nil), nil, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var j journal
			r := newRouter(t, message.PipeConfig{AckStrategy: c.strategy}, c.fn)
			_, err := r.Process(t.Context(), message.New(nil, nil, j.acking()))
			if c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("got %v, want %v", err, c.err)
			}
			j.want(t, c.told...)
		})
	}
}

func TestPanicErrorHasTheStackOfTheHandler(t *testing.T) {
	t.Parallel()
	r := newRouter(t, message.PipeConfig{}, func(context.Context, *message.Message) ([]*message.Message, error) {
		panicInAHandler()
		return nil, nil
	})
	_, err := r.Process(t.Context(), message.New(nil, nil, nil))
	var p *message.PanicError
	if !errors.As(err, &p) || p.Value != "oh" || !strings.Contains(string(p.Stack), "panicInAHandler") {
		t.Errorf("%v", err)
	}
}

func panicInAHandler() { panic("oh") }

func TestPanickingAckIsAnError(t *testing.T) {
	t.Parallel()
	for _, strategy := range []message.AckStrategy{message.AckOnSuccess, message.AckForward} {
		r := newRouter(t, message.PipeConfig{AckStrategy: strategy}, returns(nil, nil))
		_, err := r.Process(t.Context(), message.New(nil, nil, message.NewAcking(func() { panic("no") }, nil)))
		if _, ok := errors.AsType[*message.PanicError](err); !ok {
			t.Errorf("%v: %v", strategy, err)
		}
	}
}

func TestAckForwardSettlesTheInputWithItsOutputs(t *testing.T) {
	t.Parallel()
	type key struct{}
	process := func(t *testing.T, j *journal) []*message.Message {
		t.Helper()
		r := newRouter(t, message.PipeConfig{AckStrategy: message.AckForward}, func(_ context.Context, msg *message.Message) ([]*message.Message, error) {
			own := message.New("own", nil, nil)
			own.WithValue(key{}, "own")
			return []*message.Message{message.New(1, nil, nil), own, msg, msg}, nil
		})
		in := message.New(nil, nil, j.acking())
		in.WithValue(key{}, "input's")
		outs, err := r.Process(t.Context(), in)
		if err != nil || len(outs) != 4 {
			t.Fatal(outs, err)
		}
		return outs
	}
	ack := (*message.Message).Ack
	for name, c := range map[string]struct {
		settle []func(*message.Message) bool // of the outputs
		told   []string
	}{
		"two of three": {[]func(*message.Message) bool{ack, ack}, nil},
		"ack":          {[]func(*message.Message) bool{ack, ack, ack, ack}, []string{"ack", "settled"}},
		"nack":         {[]func(*message.Message) bool{ack, func(m *message.Message) bool { return m.Nack(errBoom) }, ack}, []string{"nack boom", "settled"}},
		"release":      {[]func(*message.Message) bool{(*message.Message).Release, ack, ack}, []string{"settled"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var j journal
			outs := process(t, &j)
			for i, settle := range c.settle {
				settle(outs[i])
			}
			j.want(t, c.told...)
		})
	}
	t.Run("values", func(t *testing.T) {
		t.Parallel()
		var j journal
		outs := process(t, &j)
		if v := outs[0].Context(t.Context()).Value(key{}); v != "input's" {
			t.Errorf("inherited %v", v)
		}
		if v := outs[1].Context(t.Context()).Value(key{}); v != "own" {
			t.Errorf("an output's own value became %v", v)
		}
	})
	t.Run("values stay under other strategies", func(t *testing.T) {
		t.Parallel()
		r := newRouter(t, message.PipeConfig{}, returns([]*message.Message{message.New(1, nil, nil)}, nil))
		in := message.New(nil, nil, nil)
		in.WithValue(key{}, "input's")
		outs, err := r.Process(t.Context(), in)
		if err != nil || outs[0].Context(t.Context()).Value(key{}) != nil {
			t.Error("inherited")
		}
	})
}

func TestOutputOfAForwardedEventIsNackedByARouterThatWouldAckItEarlier(t *testing.T) {
	t.Parallel()
	var j journal
	first := newRouter(t, message.PipeConfig{AckStrategy: message.AckForward}, returns([]*message.Message{message.New(1, nil, nil)}, nil))
	second := newRouter(t, message.PipeConfig{}, returns([]*message.Message{message.New(2, nil, nil)}, nil))
	event := message.New(nil, nil, message.NewAckingFrom(message.AckingConfig{
		Ack: func() { j.add("ack") }, Nack: func(error) { j.add("nack") }, Forward: true,
	}))
	outs, err := first.Process(t.Context(), event)
	must(t, err)
	_, err = second.Process(t.Context(), outs[0])
	if _, ok := errors.AsType[*message.WiringError](err); !ok {
		t.Errorf("the second Router returned %v, want a *WiringError", err)
	}
	j.want(t, "nack")
}

func TestRouterCallsTheFirstHandlerThatMatches(t *testing.T) {
	t.Parallel()
	r := message.NewRouter(message.PipeConfig{AckStrategy: message.AckForward})
	var seen, seenByMiddleware string
	note := func(ctx context.Context) string {
		name, _ := message.HandlerNameFromContext(ctx)
		strategy, ok := message.AckStrategyFromContext(ctx)
		if !ok || strategy != message.AckForward {
			t.Errorf("strategy %v, %v", strategy, ok)
		}
		return name
	}
	fn := func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		seen = note(ctx)
		return nil, nil
	}
	err := errors.Join(
		r.Use(message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
			return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
				seenByMiddleware = note(ctx)
				return next(ctx, msg)
			}
		})),
		r.AddHandler("a of x", message.MatchSource("/x"), message.NewHandler(fn, message.Named("a"))),
		r.AddHandler("a", nil, message.NewHandler(fn, message.Named("a"))),
		r.AddHandler("all of y", message.MatchSource("/y"), message.NewHandler(fn)),
	)
	must(t, err)
	for _, c := range []struct{ typ, source, want string }{
		{"a", "/x", "a of x"}, {"a", "/z", "a"}, {"a", "/y", "a"}, {"b", "/y", "all of y"},
	} {
		if _, err := r.Process(t.Context(), message.New(nil, message.Attributes{"type": c.typ, "source": c.source}, nil)); err != nil {
			t.Error(err)
		}
		if seen != c.want || seenByMiddleware != c.want {
			t.Errorf("%+v went to %q, the middleware saw %q", c, seen, seenByMiddleware)
		}
	}
	var j journal
	_, err = r.Process(t.Context(), message.New(nil, message.Attributes{"id": "7", "type": "b", "source": "/x"}, j.acking()))
	if !errors.Is(err, message.ErrNoHandler) || !strings.Contains(err.Error(), `id "7", type "b", source "/x"`) {
		t.Error(err)
	}
	j.want(t, "nack "+err.Error(), "settled")
}

func TestMiddlewareMayPassAnotherMessageOn(t *testing.T) {
	t.Parallel()
	other := message.New("other", nil, nil)
	r := newRouter(t, message.PipeConfig{}, func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
		if got, ok := message.MessageFromContext(ctx); !ok || got != other || msg.Data != "other" {
			t.Errorf("context of %v, message %v", got, msg.Data)
		}
		if name, _ := message.HandlerNameFromContext(ctx); name != "h" {
			t.Errorf("handler %q", name)
		}
		return nil, nil
	}, message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, _ *message.Message) ([]*message.Message, error) { return next(ctx, other) }
	}))
	if _, err := r.Process(t.Context(), message.New("in", nil, nil)); err != nil {
		t.Error(err)
	}
}

func TestRouterReleasesTheExpiryTimer(t *testing.T) {
	t.Parallel()
	var inside func() error
	r := newRouter(t, message.PipeConfig{}, func(ctx context.Context, _ *message.Message) ([]*message.Message, error) {
		inside = ctx.Err
		return nil, ctx.Err()
	})
	attrs := message.Attributes{message.AttrExpiryTime: "2999-01-01T00:00:00Z"}
	if _, err := r.Process(t.Context(), message.New(nil, attrs, nil)); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(inside(), context.Canceled) {
		t.Error("the context outlives the message")
	}
}

func TestRouterRejectsAnExpiredMessageForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ran := false
		r := newRouter(t, message.PipeConfig{}, func(context.Context, *message.Message) ([]*message.Message, error) {
			ran = true
			return nil, nil
		}, message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
			return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				return next(ctx, msg)
			}
		}))
		for after, want := range map[time.Duration]error{time.Nanosecond: nil, 0: message.ErrExpired, -time.Hour: message.ErrExpired} {
			var nacked error
			ran = false
			attrs := message.Attributes{message.AttrID: "7", message.AttrExpiryTime: time.Now().Add(after)}
			_, err := r.Process(t.Context(), message.New(nil, attrs, message.NewAcking(nil, func(err error) { nacked = err })))
			if !errors.Is(err, want) || !errors.Is(nacked, want) || ran != (want == nil) || message.IsPermanent(nacked) != (want != nil) {
				t.Errorf("%v before its expiry: %v, nacked with %v, the handler ran: %t", after, err, nacked, ran)
			}
			if want != nil && !strings.Contains(err.Error(), `id "7"`) {
				t.Errorf("the error does not name the message: %v", err)
			}
		}
	})
}

func TestRouterRejectsInvalidAndLateConfiguration(t *testing.T) {
	t.Parallel()
	ok := handler(returns(nil, nil))
	for want, cfg := range map[string]message.PipeConfig{
		"AckStrategy": {AckStrategy: 7}, "Concurrency": {Concurrency: -1}, "BufferSize": {BufferSize: -1},
	} {
		r := message.NewRouter(cfg)
		_, processErr := r.Process(t.Context(), message.New(nil, nil, nil))
		_, pipeErr := r.Pipe(t.Context(), make(chan *message.Message))
		for _, err := range []error{r.Use(), r.AddHandler("a", nil, ok), processErr, pipeErr, message.NewEngine(message.EngineConfig{Pipe: cfg}).Run(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), "PipeConfig."+want) {
				t.Errorf("%s: got %v", want, err)
			}
		}
	}
	r := message.NewRouter(message.PipeConfig{})
	for _, err := range []error{r.AddHandler("", nil, ok), r.AddHandler("a", nil, nil), r.Use(message.Middleware{})} {
		if err == nil {
			t.Error("want an error")
		}
	}
	must(t, errors.Join(r.AddHandler("a", nil, ok), r.Use(around(&journal{}, "m"))))
	if r.AddHandler("a", nil, ok) == nil {
		t.Error("two handlers of one name")
	}
	if _, err := r.Process(t.Context(), nil); err == nil {
		t.Error("nil was processed")
	}
	if err := r.Use(); !errors.Is(err, message.ErrStarted) {
		t.Error(err)
	}
	if err := r.AddHandler("b", nil, ok); !errors.Is(err, message.ErrStarted) {
		t.Error(err)
	}
	broken := newRouter(t, message.PipeConfig{}, returns(nil, nil), message.NewMiddleware(func(message.ProcessFunc) message.ProcessFunc { return nil }))
	for range 2 {
		if _, err := broken.Process(t.Context(), message.New(nil, nil, nil)); err == nil || !strings.Contains(err.Error(), "middleware 0") {
			t.Error(err)
		}
	}
}
