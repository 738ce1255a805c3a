package message_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

// onError is an ErrorHandler that records errors.
func (j *journal) onError(_ context.Context, msg *message.Message, err error) {
	j.add(msg.ID() + ": " + err.Error())
}

func withID(id string, acking *message.Acking) *message.Message {
	return message.New(nil, message.Attributes{message.AttrID: id}, acking)
}

func feed(msgs ...*message.Message) chan *message.Message {
	in := make(chan *message.Message, len(msgs))
	for _, m := range msgs {
		in <- m
	}
	return in
}

// echo returns one output with the input's id.
func echo(_ context.Context, msg *message.Message) ([]*message.Message, error) {
	return []*message.Message{withID(msg.ID()+"'", nil)}, nil
}

func pipe(ctx context.Context, t *testing.T, r *message.Router, in <-chan *message.Message) <-chan *message.Message {
	t.Helper()
	out, err := r.Pipe(ctx, in)
	must(t, err)
	return out
}

func TestPipeEndsWithItsInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		in := feed(withID("1", j.acking()), nil, withID("2", j.acking()))
		close(in)
		r := newRouter(t, message.PipeConfig{ErrorHandler: j.onError}, echo)
		for out := range pipe(t.Context(), t, r, in) {
			synctest.Wait()
			j.add(out.ID())
		}
		j.want(t, "ack", "settled", ": message: the message is nil", "1'", "ack", "settled", "2'")
	})
}

func TestPipeNacksAMessageWhoseHandlerCallsGoexitAndContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		in := feed(withID("1", j.acking()), withID("2", j.acking()))
		close(in)
		r := newRouter(t, message.PipeConfig{ErrorHandler: j.onError}, func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if msg.ID() == "1" {
				runtime.Goexit()
			}
			return echo(ctx, msg)
		})
		for out := range pipe(t.Context(), t, r, in) {
			synctest.Wait()
			j.add(out.ID())
		}
		const reason = "message: the handler ended its goroutine by runtime.Goexit; return an error instead"
		j.want(t, "nack "+reason, "settled", "1: "+reason, "ack", "settled", "2'")
	})
}

func TestPipeAcksAfterItsOutputsAreRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		in := feed(withID("1", j.acking()))
		close(in)
		out := pipe(t.Context(), t, newRouter(t, message.PipeConfig{}, echo), in)
		synctest.Wait()
		j.want(t)
		<-out
		synctest.Wait()
		j.want(t, "ack", "settled")
	})
}

func TestPipeReportsErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		in := feed(withID("1", j.acking()), withID("2", message.NewAcking(func() { panic("no") }, nil)))
		close(in)
		r := newRouter(t, message.PipeConfig{ErrorHandler: j.onError}, func(_ context.Context, msg *message.Message) ([]*message.Message, error) {
			if msg.ID() == "1" {
				return nil, errBoom
			}
			return nil, nil
		})
		for range pipe(t.Context(), t, r, in) {
			t.Error("an output from nowhere")
		}
		j.want(t, "1: boom", "nack boom", "settled", "2: message: panic: no")
	})
}

func TestPipeLogsWithoutAnErrorHandler(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(context.Context, *message.Message, error){
		"none":  nil,
		"panic": func(context.Context, *message.Message, error) { panic("handler of errors") },
	} {
		var buf bytes.Buffer
		cfg := message.PipeConfig{Logger: slog.New(slog.NewJSONHandler(&buf, nil)), ErrorHandler: handler}
		r := newRouter(t, cfg, func(context.Context, *message.Message) ([]*message.Message, error) {
			panicInAHandler()
			return nil, nil
		})
		in := feed(withID("7", nil))
		close(in)
		for range pipe(t.Context(), t, r, in) {
			t.Error("an output from nowhere")
		}
		for _, want := range []string{`"id":"7"`, `"error":"message: panic: oh"`, "panicInAHandler"} {
			if !strings.Contains(buf.String(), want) {
				t.Errorf("%s: %s is not in the log: %s", name, want, buf.String())
			}
		}
		if handler != nil && !strings.Contains(buf.String(), "handler of errors") {
			t.Errorf("the ErrorHandler's panic is not in the log: %s", buf.String())
		}
	}
}

func TestPipeRunsAsManyHandlersAsConfigured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers = 3
		var running, most atomic.Int32
		in := make(chan *message.Message, 20)
		for range cap(in) {
			in <- withID("", nil)
		}
		close(in)
		r := newRouter(t, message.PipeConfig{Concurrency: workers}, func(ctx context.Context, _ *message.Message) ([]*message.Message, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			timer := time.NewTimer(time.Second)
			<-timer.C
			return nil, nil
		})
		start := time.Now()
		for range pipe(t.Context(), t, r, in) {
			t.Error("an output from nowhere")
		}
		if took := time.Since(start); most.Load() != workers || took != 7*time.Second {
			t.Errorf("%d at once, %v; want %d and 7s", most.Load(), took, workers)
		}
	})
}

// blocked runs a Pipe over one message and returns when its handler waits for goOn.
func blocked(t *testing.T, cfg message.PipeConfig, in <-chan *message.Message, goOn <-chan struct{}) (<-chan *message.Message, context.CancelFunc) {
	t.Helper()
	r := newRouter(t, cfg, func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
		select {
		case <-goOn:
			return echo(ctx, msg)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	out := pipe(ctx, t, r, in)
	synctest.Wait()
	return out, cancel
}

func TestStoppedPipeFinishesMessagesInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		goOn := make(chan struct{})
		out, cancel := blocked(t, message.PipeConfig{}, feed(withID("1", j.acking()), withID("2", j.acking())), goOn)
		cancel()
		time.AfterFunc(time.Second, func() { close(goOn) })
		var got []string
		for msg := range out {
			got = append(got, msg.ID())
		}
		if !slices.Equal(got, []string{"1'"}) {
			t.Errorf("outputs %q", got)
		}
		j.want(t, "ack", "settled")
	})
}

func TestStoppedPipeNacksMessagesInFlightAfterShutdownTimeout(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, time.Minute, -1} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			out, cancel := blocked(t, message.PipeConfig{ShutdownTimeout: timeout, ErrorHandler: func(_ context.Context, _ *message.Message, err error) {
				if timeout >= 0 && !errors.Is(err, message.ErrStopped) {
					t.Error(err)
				}
			}}, feed(withID("1", message.NewAcking(nil, func(error) { j.add("nack") }))), nil)
			start := time.Now()
			cancel()
			if _, ok := <-out; ok {
				t.Error("an output from nowhere")
			}
			want := timeout
			if timeout == 0 {
				want = 10 * time.Second
			}
			if took := time.Since(start); took != max(want, 0) {
				t.Errorf("took %v, want %v", took, want)
			}
			j.want(t, "nack")
		})
	}
}

func TestStoppedPipeNacksInputsOfUnreadOutputs(t *testing.T) {
	t.Parallel()
	for _, strategy := range []message.AckStrategy{message.AckOnSuccess, message.AckForward} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			var nack error
			in := feed(withID("1", message.NewAcking(func() { j.add("ack") }, func(err error) { nack = err })))
			r := newRouter(t, message.PipeConfig{AckStrategy: strategy, ErrorHandler: func(_ context.Context, msg *message.Message, _ error) { j.add(msg.ID()) }}, echo)
			ctx, cancel := context.WithCancel(t.Context())
			out := pipe(ctx, t, r, in)
			synctest.Wait() // until the output is offered
			cancel()
			synctest.Wait() // nothing was read, and nothing is left running
			if _, ok := <-out; ok {
				t.Error("the output was read")
			}
			if !errors.Is(nack, message.ErrStopped) || !errors.Is(nack, context.Canceled) {
				t.Errorf("%v: nacked with %v", strategy, nack)
			}
			j.want(t, "1'")
		})
	}
}

func TestStoppedPipeReadsNoMoreMessages(t *testing.T) {
	t.Parallel()
	for range 20 { // select would sometimes take a message
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		in := feed(withID("1", nil))
		for range pipe(ctx, t, newRouter(t, message.PipeConfig{}, echo), in) {
			t.Error("an output from nowhere")
		}
		if len(in) != 1 {
			t.Fatal("the message was taken")
		}
	}
}

func TestPipeRejectsANilChannel(t *testing.T) {
	t.Parallel()
	if _, err := newRouter(t, message.PipeConfig{}, echo).Pipe(t.Context(), nil); err == nil {
		t.Error("want an error")
	}
}
