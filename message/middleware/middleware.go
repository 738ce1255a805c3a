// Package middleware provides middlewares for any Router. They do not use Redis.
//
// A Router runs middlewares in the order in which Use added them. The usual order is
//
//	router.Use(middleware.Logging(nil), middleware.CorrelationID(), middleware.Retry(middleware.RetryConfig{}),
//		middleware.Timeout(5*time.Second), middleware.Recover(), transaction)
//
// With it, each attempt has its own timeout, and a panic is retried like an error. Put Recover inside middlewares that must see a
// panic as an error. The Router itself recovers outside of all middlewares.
package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/luatx/luatx/message"
)

// Recover returns a middleware that converts a panic of the wrapped steps into a *message.PanicError with the stack.
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

// Timeout returns a middleware that cancels the context of the wrapped steps after d. It still waits for the handler to return:
// it does not interrupt a handler that ignores its context. A d of zero or less disables the timeout.
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

// Logging returns a middleware that logs each message after it was handled, at info level or, with the error, at error level. The
// attributes are handler, id, type, source, subject, duration, outputs and error. A nil logger means slog.Default().
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

// CorrelationID returns a middleware that sets the correlation id of outputs without one to that of the input, or else to its id.
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
