package middleware

import (
	"context"
	"time"

	"github.com/luatx/luatx/message"
)

// RetryConfig says what is retried, and when. The zero value works.
type RetryConfig struct {
	// MaxAttempts is how often the handler runs at most, the first time included. Defaults to 3, as do values below 1.
	MaxAttempts int
	// Backoff gives the waits between attempts, but for errors that ask for a delay of their own (message.RetryAfter).
	// Defaults to the zero Backoff: 100 ms, doubled up to 30 s, with full jitter.
	Backoff message.Backoff
	// Retryable says whether an error is worth another attempt; permanent errors never are. Defaults to all errors.
	Retryable func(error) bool
}

// Retry runs what it wraps again after an error. It gives up, with the last error, after MaxAttempts, at a permanent
// error, when the message has been settled meanwhile, and when the context has ended or would end before the next attempt.
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
	})
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

// pause waits, and says whether another attempt makes sense.
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
