package stream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

type consumer interface {
	Consume(ctx context.Context, t *luatx.Transactor, p stream.Processor) error
}

func TestConsumeThatEndsBeforeItHasBegunReturnsNil(t *testing.T) {
	t.Parallel()
	f := shared(t)
	p := newParted(t, f.client, 2)
	single, err := stream.NewSubscriber(f.client, f.config())
	redistest.Must(t, err)
	transactor, err := luatx.New(f.client, luatx.Config{Namespace: redistest.Namespace(t)})
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, consumer := range map[string]consumer{"one stream": single, "partitions": p.subscriber(t, p.config())} {
		process := stream.ProcessFunc(func(context.Context, *message.RawMessage) error { t.Error("handled"); return nil })
		if err := consumer.Consume(ctx, transactor, process); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConsumeEndsTheContextsOfHandlersAfterShutdownTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	p := newParted(t, redistest.Shared(t).Client(t), 1)
	f := shared(t)
	parted, plain := p.config(), f.config()
	parted.ShutdownTimeout, plain.ShutdownTimeout = timeout, timeout
	single, err := stream.NewSubscriber(f.client, plain)
	redistest.Must(t, err)
	p.publish(t, 1, 0, 1)
	f.add(t, "a")
	for name, consumer := range map[string]consumer{"one stream": single, "partitions": p.subscriber(t, parted)} {
		transactor, err := luatx.New(f.client, luatx.Config{Namespace: redistest.Namespace(t)})
		redistest.Must(t, err)
		handling, ended := make(chan struct{}), make(chan time.Duration, 1)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		var stopped time.Time
		go func() {
			done <- consumer.Consume(ctx, transactor, stream.ProcessFunc(func(ctx context.Context, msg *message.RawMessage) error {
				close(handling)
				<-ctx.Done()
				ended <- time.Since(stopped)
				msg.Ack()
				return nil
			}))
		}()
		<-handling
		stopped = time.Now()
		stop()
		redistest.Must(t, <-done)
		if after := <-ended; after < timeout || after > 9*time.Second {
			t.Errorf("%s: the handler's context ended %v after the stop, want %v", name, after, timeout)
		}
	}
}

func TestErrorOfAProcessorNacksTheMessageThatItDidNotSettle(t *testing.T) {
	t.Parallel()
	p, f := newParted(t, redistest.Shared(t).Client(t), 1), shared(t)
	single, err := stream.NewSubscriber(f.client, f.config())
	redistest.Must(t, err)
	p.publish(t, 1, 0, 1)
	f.add(t, "a")
	for name, consumer := range map[string]consumer{"one stream": single, "partitions": p.subscriber(t, p.config())} {
		transactor, err := luatx.New(f.client, luatx.Config{Namespace: redistest.Namespace(t)})
		redistest.Must(t, err)
		ctx, stop := context.WithTimeout(t.Context(), patience)
		calls := 0
		redistest.Must(t, consumer.Consume(ctx, transactor, stream.ProcessFunc(func(_ context.Context, msg *message.RawMessage) error {
			if calls++; calls == 1 {
				return errors.New("not settled")
			}
			msg.Ack()
			stop()
			return nil
		})))
		if stop(); calls != 2 {
			t.Errorf("%s: %d deliveries, want 2", name, calls)
		}
	}
}
