package message

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Pipe processes the messages of in until in is closed or ctx ends, and then closes the channel of outputs that it
// returns. Read that channel until it is closed: a worker waits for a reader of each output.
//
// When ctx ends, no more messages are taken; those left in the channel stay unsettled. Messages in flight finish, within
// PipeConfig.ShutdownTimeout. An output that has no reader waiting then is nacked with ErrStopped and reported, and under
// AckOnSuccess so is its input, whose redelivery gives the outputs again.
//
// Pipe returns a *WiringError if the middlewares and the ack strategy lose messages together. If the danger shows only in a
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

// send offers v to a reader; once ctx has ended, only to one that waits already.
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

// workContext is ctx with its end put off by the shutdown timeout.
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

// deliverFunc hands an output over. Only ErrStopped means that the output should be made again.
type deliverFunc func(ctx context.Context, out *Message) error

// pump runs the workers until in is closed or take has ended. Messages are handled under work. A *WiringError goes to stop.
func (r *Router) pump(take, work context.Context, in <-chan *Message, deliver deliverFunc, stop func(error)) {
	var wg sync.WaitGroup
	for range r.cfg.Concurrency {
		wg.Go(func() {
			for {
				msg, ok := receive(take, in)
				if !ok {
					return
				}
				if unsafe, ok := errors.AsType[*WiringError](r.serve(work, msg, deliver)); ok {
					stop(unsafe)
				}
			}
		})
	}
	wg.Wait()
}

// receive looks at the end first: of two ready cases select takes either.
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

// serve takes one message all the way: handling, outputs, acknowledgement. It returns the error of the handling, which it has
// reported.
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

// hand hands one output over, or else reports it and nacks it. Under AckOnSuccess it is nacked only where it should be
// made again: its acking may be the input's, and the handler has succeeded.
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

// report tells of an error that nobody is given as a result.
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
		level = slog.LevelWarn // it comes again
	}
	r.cfg.Logger.LogAttrs(ctx, level, "message failed", attrs...)
}
