// Package pipeline processes messages in pipeline mode, as most services with Redis do: SetNX marks the message, Middleware sends
// the handler's writes as MULTI … EXEC, Outbox adds its events to a stream, and the router acknowledges the message.
// stack.Pipelined assembles these steps.
//
// Pipeline mode has three gaps. If the process dies between SET NX and EXEC, the message is marked but not applied. Its
// redelivery counts as a duplicate, so the message is lost until SetNXConfig.Retention has passed. If a command fails inside
// EXEC, the other commands still take effect. If the reply to EXEC is lost, the commands may have taken effect, and the
// redelivery applies them again. Each crash affects at most the messages in process at that time. Scripted mode
// (luatx.Middleware) closes all three gaps.
package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
)

// Error reports that a MULTI … EXEC, or some of its commands, failed. Redis does not undo the other commands.
type Error struct {
	// Err is the first error.
	Err error
	// Commands are the pipeline's commands, each with its own error.
	Commands []redis.Cmder
}

func (e *Error) Error() string { return fmt.Sprintf("redis tx exec: %v", e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Middleware runs each handler with a TxPipeline, which queues the commands that adapters issue on luatx.CmdableFromContext. If
// the handler succeeds, Middleware sends them as MULTI … EXEC; if it fails, Middleware discards them. If EXEC fails, Middleware
// returns an *Error. Place it inside SetNX and outside Outbox.
func Middleware(client redis.UniversalClient) message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if _, ok := luatx.PipelineFromContext(ctx); ok {
				return nil, fmt.Errorf("%w: pipeline.Middleware inside another transaction; leave one out", luatx.ErrNested)
			}
			if mark.In(ctx, mark.Overlap) {
				return nil, errors.New("pipeline: pipeline.Middleware inside pipeline.Overlap; replace pipeline.Overlap by pipeline.SetNX")
			}
			pipe := client.TxPipeline()
			outputs, err := next(luatx.ContextWithPipeline(ctx, pipe), msg)
			if err == nil {
				err = message.CheckOutputs(ctx, msg, outputs, mark.In(ctx, mark.SetNX))
			}
			if err != nil {
				pipe.Discard()
				return nil, err
			}
			cmds, err := pipe.Exec(ctx)
			if err := failure(cmds, err); err != nil {
				return nil, &Error{err, cmds}
			}
			return outputs, nil
		}
	}, message.Traits{Name: "pipeline.Middleware", Transaction: true})
}

// failure returns the first error of an Exec that is a failure. go-redis may report an earlier empty reply (redis.Nil) instead.
func failure(cmds []redis.Cmder, err error) error {
	if !errors.Is(err, redis.Nil) {
		return err
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}
