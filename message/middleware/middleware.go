// Package middleware has the middlewares that any Router may need. They know nothing of Redis.
//
// A Router runs them from the first to the last that Use was given, so the usual order is
//
//	router.Use(middleware.Logging(nil), middleware.CorrelationID(), middleware.Retry(middleware.RetryConfig{}),
//		middleware.Timeout(5*time.Second), middleware.Recover(), transaction)
//
// where each attempt has its own timeout, and a panic is retried as an error is. Put Recover inside of what must see
// a panic as an error; the Router itself recovers outside of everything.
package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/luatx/luatx/message"
)

// Recover turns a panic of what it wraps into a *message.PanicError with the stack.
func Recover() message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) (outs []*message.Message, err error) {
			defer func() {
				if v := recover(); v != nil {
					outs, err = nil, &message.PanicError{Value: v, Stack: debug.Stack()}
				}
			}()
			return next(ctx, msg)
		}
	})
}

// Timeout ends the context of what it wraps after d. It waits for the handler to return all the same: a handler that
// does not look at its context is not cut off. A d of zero or less is no timeout.
func Timeout(d time.Duration) message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		if d <= 0 {
			return next
		}
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			return next(ctx, msg)
		}
	})
}

// Logging logs each message once it has been handled: at info level, or at error level with the error. The keys are
// handler, id, type, source, subject, duration, outputs and error. A nil logger means slog.Default().
func Logging(logger *slog.Logger) message.Middleware {
	logger = cmp.Or(logger, slog.Default())
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			start := time.Now()
			outs, err := next(ctx, msg)
			handler, _ := message.HandlerNameFromContext(ctx)
			attrs := []slog.Attr{
				slog.String("handler", handler),
				slog.String("id", msg.ID()),
				slog.String("type", msg.Type()),
				slog.String("source", msg.Source()),
				slog.String("subject", msg.Subject()),
				slog.Duration("duration", time.Since(start)),
				slog.Int("outputs", len(outs)),
			}
			if err != nil {
				logger.LogAttrs(ctx, slog.LevelError, "message failed", append(attrs, slog.Any("error", err))...)
			} else {
				logger.LogAttrs(ctx, slog.LevelInfo, "message handled", attrs...)
			}
			return outs, err
		}
	})
}

// CorrelationID gives the outputs that have no correlation id the input's, or its id where it has none either.
func CorrelationID() message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			id := message.Correlation(msg.Attributes)
			outs, err := next(ctx, msg)
			if id == "" {
				return outs, err
			}
			for _, out := range outs {
				if out == nil || out.CorrelationID() != "" {
					continue
				}
				if out.Attributes == nil {
					out.Attributes = message.Attributes{}
				}
				out.Attributes[message.AttrCorrelationID] = id
			}
			return outs, err
		}
	})
}
