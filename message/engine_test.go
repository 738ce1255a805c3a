package message_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

// upper is a Marshaler for upper-case text, which differs from JSON.
type upper struct{}

func (upper) Marshal(v any) ([]byte, error) {
	if e, ok := v.(error); ok {
		return nil, e
	}
	return []byte(strings.ToUpper(fmt.Sprint(v))), nil
}

func (upper) Unmarshal(data []byte, v any) error {
	*v.(*OrderPlaced) = OrderPlaced{ID: strings.ToLower(string(data))}
	return nil
}

func (upper) ContentType() string { return "text/upper" }

func rawOf(data, typ string, acking *message.Acking) *message.RawMessage {
	return message.NewRaw([]byte(data), message.Attributes{"id": data, "type": typ, "source": "/in"}, acking)
}

func feedRaw(msgs ...*message.RawMessage) chan *message.RawMessage {
	in := make(chan *message.RawMessage, len(msgs))
	for _, m := range msgs {
		in <- m
	}
	return in
}

// newEngine returns an Engine with one handler from orders to shipped events, and the input.
func newEngine(t *testing.T, cfg message.EngineConfig, in <-chan *message.RawMessage) *message.Engine {
	t.Helper()
	e := message.NewEngine(cfg)
	h := message.NewCommandHandler(func(_ context.Context, cmd OrderPlaced) ([]shipped, error) {
		return []shipped{{Stock: cmd.ID}}, nil
	}, message.CommandHandlerConfig{})
	must(t, errors.Join(e.AddHandler("ship", nil, h), e.AddRawInput("in", message.MatchSource("/in"), in)))
	return e
}

func rawOutput(t *testing.T, e *message.Engine, name string, m message.Matcher) <-chan *message.RawMessage {
	t.Helper()
	out, err := e.AddRawOutput(name, m)
	must(t, err)
	return out
}

func TestEngineDecodesHandlesAndEncodesMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		marshaler       message.Marshaler
		in, out, ofType string
	}{
		{nil, `{"ID":"<7>"}`, `{"Stock":"<7>"}`, "application/json"},
		{upper{}, `SEVEN`, `{SEVEN}`, "text/upper"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			in := feedRaw(rawOf(c.in, "order.placed", j.acking()))
			close(in)
			e := newEngine(t, message.EngineConfig{Marshaler: c.marshaler}, in)
			other, out := rawOutput(t, e, "other", message.MatchType("x")), rawOutput(t, e, "out", nil)
			must(t, e.Router().Use(around(&j, "middleware")))
			done := make(chan error)
			go func() { done <- e.Run(t.Context()) }()
			got := <-out
			if string(got.Data) != c.out || got.DataContentType() != c.ofType || got.Type() != "shipped" || got.CorrelationID() != c.in {
				t.Errorf("%s, %v", got.Data, got.Attributes)
			}
			if len(got.ID()) != 26 {
				t.Errorf("id %q", got.ID())
			}
			must(t, <-done)
			if _, open := <-out; open {
				t.Error("the output is not closed")
			}
			if _, open := <-other; open {
				t.Error("the other output is not closed")
			}
			j.want(t, "middleware begins", "middleware ends", "ack", "settled")
		})
	}
}

func TestEnginePassesUndecodedDataToHandlersOfBytes(t *testing.T) {
	t.Parallel()
	in := feedRaw(rawOf("not JSON", "bytes", nil), rawOf("not JSON", "any", nil), rawOf("", "order.placed", nil))
	close(in)
	var j journal
	e := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{ErrorHandler: j.onError}})
	err := errors.Join(
		e.AddRawInput("in", nil, in),
		e.AddHandler("bytes", nil, message.NewHandler(func(_ context.Context, msg *message.RawMessage) ([]*message.Message, error) {
			j.add("bytes " + string(msg.Data))
			return nil, nil
		}, message.Named("bytes"))),
		e.AddHandler("order", nil, message.NewHandler(func(_ context.Context, msg *message.TypedMessage[OrderPlaced]) ([]*message.Message, error) {
			j.add("order " + msg.Data.ID)
			return nil, nil
		})),
		e.AddHandler("any", nil, message.NewHandler(func(_ context.Context, msg *message.Message) ([]*message.Message, error) {
			j.add(fmt.Sprintf("any %s", msg.Data))
			return nil, nil
		})),
		e.Run(t.Context()),
	)
	must(t, err)
	j.want(t, "bytes not JSON", "any not JSON", "order ")
}

func TestEngineReportsAndNacksMessagesItCannotProcess(t *testing.T) {
	t.Parallel()
	var reports atomic.Int32
	cfg := message.EngineConfig{Pipe: message.PipeConfig{ErrorHandler: func(context.Context, *message.Message, error) { reports.Add(1) }}}
	var nacks []error
	nacking := func() *message.Acking { return message.NewAcking(nil, func(err error) { nacks = append(nacks, err) }) }
	in := feedRaw(rawOf("{", "order.placed", nacking()), rawOf("{}", "unknown", nacking()), nil)
	close(in)
	e := newEngine(t, cfg, in)
	must(t, e.Run(t.Context()))
	if reports.Load() != 3 || len(nacks) != 2 {
		t.Fatalf("%d reports and %d nacks: %v", reports.Load(), len(nacks), nacks)
	}
	if !errors.Is(nacks[0], message.ErrDecode) || !message.IsPermanent(nacks[0]) {
		t.Errorf("undecodable: %v", nacks[0])
	}
	if !errors.Is(nacks[1], message.ErrNoHandler) || message.IsPermanent(nacks[1]) {
		t.Errorf("without a handler: %v", nacks[1])
	}
}

func TestEngineNacksMessagesThatItsInputDoesNotMatch(t *testing.T) {
	t.Parallel()
	var j journal
	var nack error
	raw := message.NewRaw(nil, message.Attributes{"id": "1", "source": "/elsewhere"}, message.NewAcking(nil, func(err error) { nack = err }))
	in := feedRaw(raw)
	close(in)
	e := newEngine(t, message.EngineConfig{Pipe: message.PipeConfig{ErrorHandler: j.onError}}, in)
	if err := e.Run(t.Context()); err != nil || !errors.Is(nack, message.ErrNoInput) {
		t.Errorf("%v, nacked with %v", err, nack)
	}
	j.want(t, "1: "+nack.Error())
}

func TestEngineReportsOutputsThatItCannotDeliver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		strategy  message.AckStrategy
		marshaler message.Marshaler
		matcher   message.Matcher
		want      error
		nacked    bool
	}{
		{message.AckOnSuccess, nil, message.MatchType("x"), message.ErrNoOutput, false},
		{message.AckForward, nil, message.MatchType("x"), message.ErrNoOutput, true},
		{message.AckOnSuccess, failing{}, nil, message.ErrEncode, false},
		{message.AckForward, failing{}, nil, message.ErrEncode, true},
	} {
		var reported, nack error
		acked := false
		in := feedRaw(rawOf("{}", "order.placed", message.NewAcking(func() { acked = true }, func(err error) { nack = err })))
		close(in)
		e := newEngine(t, message.EngineConfig{Marshaler: c.marshaler, Pipe: message.PipeConfig{
			AckStrategy:  c.strategy,
			ErrorHandler: func(_ context.Context, _ *message.Message, err error) { reported = err },
		}}, in)
		rawOutput(t, e, "out", c.matcher)
		must(t, e.Run(t.Context()))
		if !errors.Is(reported, c.want) || errors.Is(nack, c.want) != c.nacked || acked == c.nacked {
			t.Errorf("%v %v: reported %v, nacked %v, acked %v", c.strategy, c.want, reported, nack, acked)
		}
	}
}

// failing is a Marshaler that cannot encode.
type failing struct{ message.JSONMarshaler }

func (failing) Marshal(any) ([]byte, error) { return nil, errBoom }

func TestEngineSettlesAForwardedInputWithItsOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		in := feedRaw(rawOf("{}", "order.placed", j.acking()))
		close(in)
		e := newEngine(t, message.EngineConfig{Pipe: message.PipeConfig{AckStrategy: message.AckForward}}, in)
		out := rawOutput(t, e, "out", nil)
		done := make(chan error)
		go func() { done <- e.Run(t.Context()) }()
		raw := <-out
		must(t, <-done)
		j.want(t)
		raw.Nack(errBoom)
		j.want(t, "nack boom", "settled")
	})
}

// lateSubscriber cannot subscribe before its context ends.
type lateSubscriber struct{}

func (lateSubscriber) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestEngineThatStopsBeforeItHasSubscribedReturnsNil(t *testing.T) {
	t.Parallel()
	e := newEngine(t, message.EngineConfig{}, make(chan *message.RawMessage))
	must(t, e.AddSubscriber("late", message.MatchSource("/late"), lateSubscriber{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, e.Run(ctx))
}

func TestStoppedEngineWaitsUntilOutputsInFlightAreRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		in := make(chan *message.RawMessage)
		e := newEngine(t, message.EngineConfig{}, in)
		out := rawOutput(t, e, "out", nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		in <- rawOf(`{"ID":"1"}`, "order.placed", j.acking())
		synctest.Wait() // until its output waits for a reader
		in <- rawOf(`{"ID":"2"}`, "order.placed", message.NewAcking(nil, func(err error) { j.add(fmt.Sprint("nack ", errors.Is(err, message.ErrStopped))) }))
		synctest.Wait() // until it waits for a worker
		cancel()
		synctest.Wait()
		j.want(t, "nack true")
		select {
		case err := <-done:
			t.Fatal("Run has returned before its output was read", err)
		case <-time.After(time.Second):
		}
		if got := <-out; string(got.Data) != `{"Stock":"1"}` {
			t.Errorf("%s", got.Data)
		}
		must(t, <-done)
		j.want(t, "nack true", "ack", "settled")
	})
}

func TestStoppedEngineNacksUnreadOutputsAfterShutdownTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var nack error
		in := feedRaw(rawOf("{}", "order.placed", message.NewAcking(nil, func(err error) { nack = err })))
		e := newEngine(t, message.EngineConfig{Pipe: message.PipeConfig{ShutdownTimeout: time.Minute, ErrorHandler: (&journal{}).onError}}, in)
		rawOutput(t, e, "out", nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		synctest.Wait()
		start := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if !errors.Is(nack, message.ErrStopped) {
			t.Errorf("nacked with %v", nack)
		}
	})
}

func TestEngineRejectsInvalidAndLateConfiguration(t *testing.T) {
	t.Parallel()
	ch := feedRaw()
	e := message.NewEngine(message.EngineConfig{})
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "AddRawInput") {
		t.Error(err)
	}
	must(t, e.AddRawInput("in", nil, ch))
	rawOutput(t, e, "out", nil)
	_, twice := e.AddRawOutput("out", nil)
	_, nameless := e.AddRawOutput("", nil)
	for _, err := range []error{e.AddRawInput("in", nil, ch), e.AddRawInput("", nil, ch), e.AddRawInput("x", nil, nil), twice, nameless} {
		if err == nil {
			t.Error("want an error")
		}
	}
	close(ch)
	must(t, e.Run(t.Context()))
	_, late := e.AddRawOutput("late", nil)
	for _, err := range []error{e.Run(t.Context()), late, e.AddRawInput("late", nil, ch), e.AddHandler("late", nil, handler(echo)), e.Router().Use()} {
		if !errors.Is(err, message.ErrStarted) {
			t.Error(err)
		}
	}
}
