package message

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Pipe processes the messages of in until in is closed or ctx ends, and then closes the channel of outputs that it returns. Read
// that channel until it is closed, because a worker waits for a reader of each output.
//
// When ctx ends, Pipe takes no more messages and leaves the rest of the channel unsettled. Messages in flight finish within
// PipeConfig.ShutdownTimeout. If no reader waits for an output then, Pipe nacks it with ErrStopped and reports it. Under
// AckOnSuccess, Pipe also nacks its input, whose redelivery creates the outputs again.
//
// Pipe returns a *WiringError if the middlewares and the ack strategy lose messages together. If the problem appears only with a
// message, Pipe nacks that message, reports the error and stops.
func (r *Router) Pipe(ctx context.Context, in <-chan *Message) (<-chan *Message, error) {
	if in == nil {
		return nil, errors.New("message: Pipe needs a channel of messages")
	}
	if err := r.start(); err != nil {
		return nil, err
	}
	out := make(chan *Message, r.cfg.BufferSize)
	go func() {
		defer close(out)
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		work, cancel := r.workContext(ctx)
		defer cancel()
		r.pump(ctx, work, in, func(_ context.Context, msg *Message) error { return send(ctx, out, msg) }, stop)
	}()
	return out, nil
}

// send offers v to a reader. After ctx has ended, it sends only if a reader is waiting.
func send[T any](ctx context.Context, ch chan<- T, v T) error {
	select {
	case ch <- v:
		return nil
	default:
	}
	select {
	case ch <- v:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w before it was taken over: %w", ErrStopped, context.Cause(ctx))
	}
}

// workContext returns a context that ends after ctx, later by the shutdown timeout.
func (r *Router) workContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.cfg.ShutdownTimeout < 0 {
		return context.WithCancel(ctx)
	}
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(r.cfg.ShutdownTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(fmt.Errorf("%w: not finished %v after the end of the context", ErrStopped, r.cfg.ShutdownTimeout))
		case <-work.Done():
		}
	})
	return work, func() {
		stop()
		cancel(context.Canceled)
	}
}

// deliverFunc delivers an output. Only ErrStopped means that the output should be created again.
type deliverFunc func(ctx context.Context, out *Message) error

// pump runs the workers until in is closed or take has ended. Handlers run under work. A *WiringError is passed to stop.
func (r *Router) pump(take, work context.Context, in <-chan *Message, deliver deliverFunc, stop func(error)) {
	var wg sync.WaitGroup
	var worker func()
	worker = func() {
		done := false
		defer func() {
			if !done {
				wg.Go(worker) // a handler has ended this goroutine by runtime.Goexit
			}
		}()
		for {
			msg, ok := receive(take, in)
			if done = !ok; done {
				return
			}
			if unsafe, ok := errors.AsType[*WiringError](r.serve(work, msg, deliver)); ok {
				stop(unsafe)
			}
		}
	}
	for range r.cfg.Concurrency {
		wg.Go(worker)
	}
	wg.Wait()
}

// receive checks the end of ctx first, because select chooses randomly between two ready cases.
func receive[T any](ctx context.Context, in <-chan T) (v T, ok bool) {
	if ctx.Err() != nil {
		return v, false
	}
	select {
	case <-ctx.Done():
		return v, false
	case v, ok = <-in:
		return v, ok
	}
}

// serve handles one message, delivers its outputs and acknowledges it. It reports errors and returns that of the handling.
func (r *Router) serve(ctx context.Context, msg *Message, deliver deliverFunc) error {
	if msg == nil {
		r.report(ctx, New(nil, nil, nil), errNilMessage)
		return nil
	}
	outs, err := r.handle(ctx, msg, false)
	handled := err
	if err == nil && r.cfg.AckStrategy == AckForward {
		if err := guard(func() error { forward(msg, outs); return nil }); err != nil {
			r.report(ctx, msg, err)
		}
	}
	if err != nil {
		r.report(ctx, msg, err)
	}
	var stopped error
	for _, out := range outs {
		if err := r.hand(ctx, out, deliver); errors.Is(err, ErrStopped) {
			stopped = err
		}
	}
	if err == nil && r.cfg.AckStrategy == AckForward {
		return nil // the outputs settle it
	}
	if err == nil {
		err = stopped
	}
	if err := r.settle(msg, err); err != nil {
		r.report(ctx, msg, err)
	}
	return handled
}

// hand delivers one output, or else reports and nacks it. Under AckOnSuccess, it nacks only if the output should be created
// again, because the output may share the acking of the input, and the handler has succeeded.
func (r *Router) hand(ctx context.Context, out *Message, deliver deliverFunc) error {
	err := guard(func() error { return deliver(ctx, out) })
	if err == nil {
		return nil
	}
	r.report(ctx, out, err)
	if r.cfg.AckStrategy != AckOnSuccess || errors.Is(err, ErrStopped) {
		if err := guard(func() error { out.Nack(err); return nil }); err != nil {
			r.report(ctx, out, err)
		}
	}
	return err
}

// report passes an error that no caller gets as a result to the ErrorHandler or the log.
func (r *Router) report(ctx context.Context, msg *Message, err error) {
	if r.cfg.ErrorHandler == nil {
		r.log(ctx, msg, err)
		return
	}
	if p := guard(func() error { r.cfg.ErrorHandler(ctx, msg, err); return nil }); p != nil {
		r.log(ctx, msg, err)
		r.log(ctx, msg, fmt.Errorf("message: PipeConfig.ErrorHandler: %w", p))
	}
}

func (r *Router) log(ctx context.Context, msg *Message, err error) {
	attrs := []slog.Attr{
		slog.String("id", msg.ID()),
		slog.String("type", msg.Type()),
		slog.String("source", msg.Source()),
		slog.Any("error", err),
	}
	if p := (*PanicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	level := slog.LevelError
	if errors.Is(err, ErrStopped) {
		level = slog.LevelWarn // it is delivered again
	}
	r.cfg.Logger.LogAttrs(ctx, level, "message failed", attrs...)
}
