package middleware

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/luatx/luatx/message"
)

// RetryConfig configures Retry. The zero value is usable.
type RetryConfig struct {
	// MaxAttempts is the maximum number of runs of the handler, including the first. Defaults to 3, as do values below 1.
	MaxAttempts int
	// Backoff sets the delays between attempts, except for errors with their own delay (message.RetryAfter). Defaults to the zero
	// Backoff: 100 ms, doubled up to 30 s, with full jitter.
	Backoff message.Backoff
	// Retryable reports whether to retry an error. Permanent errors are never retried. Defaults to all errors.
	Retryable func(error) bool
}

// Retry returns a middleware that runs the wrapped steps again after an error. It returns the last error after MaxAttempts, after
// a permanent error, if the message has been settled, and if the context has ended or would end before the next attempt.
//
// Place Retry outside of transactions, such as luatx.Middleware. Inside one, the commit would also contain the writes of the
// failed attempts, so a Router returns a *message.WiringError.
func Retry(cfg RetryConfig) message.Middleware {
	if cfg.MaxAttempts < 1 {
		cfg.MaxAttempts = 3
	}
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			for attempt := 1; ; attempt++ {
				outs, err := next(ctx, msg)
				if err == nil || attempt >= cfg.MaxAttempts || !cfg.worthwhile(err) || !pause(ctx, msg, cfg.delay(attempt, err)) {
					return outs, err
				}
			}
		}
	}, message.Traits{Name: "middleware.Retry", Inside: noTransaction})
}

// noTransaction is the Traits.Inside of Retry. It returns an error if the attempts would share a transaction.
func noTransaction(outer []message.Traits) error {
	i := slices.IndexFunc(outer, func(t message.Traits) bool { return t.Transaction })
	if i < 0 {
		return nil
	}
	return &message.WiringError{
		Problem: fmt.Sprintf("middleware.Retry inside %s commits the writes of failed attempts together with those of the last one", outer[i].Name),
		Remedy:  "put middleware.Retry before " + outer[i].Name,
	}
}

func (c RetryConfig) worthwhile(err error) bool {
	return !message.IsPermanent(err) && (c.Retryable == nil || c.Retryable(err))
}

func (c RetryConfig) delay(attempt int, err error) time.Duration {
	if d, ok := message.RetryDelay(err); ok {
		return d
	}
	return c.Backoff.Delay(attempt)
}

// pause waits for d and reports whether another attempt makes sense.
func pause(ctx context.Context, msg *message.Message, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	settled := msg.Settled()
	select {
	case <-settled:
		return false
	case <-ctx.Done():
		return false
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-settled:
		return false
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
