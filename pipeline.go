package luatx

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
)

// PipelineError is a MULTI … EXEC that failed, or some commands of which did. Redis does not undo the others.
type PipelineError struct {
	// Err is the first error.
	Err error
	// Commands are the pipeline's commands, each with its own error.
	Commands []redis.Cmder
}

func (e *PipelineError) Error() string { return fmt.Sprintf("redis tx exec: %v", e.Err) }
func (e *PipelineError) Unwrap() error { return e.Err }

// PipelineMiddleware runs each handler with a TxPipeline: what adapters issue on CmdableFromContext is queued,
// sent as MULTI … EXEC when the handler has returned without error, and discarded when it fails.
//
// This is the three-step way that most services use today: inbox.SetNX outside, this in the middle,
// outbox.PipelineMiddleware inside. It has a gap: a process that dies between the inbox's SET NX and the EXEC
// leaves a message marked and not applied, for as long as the mark is kept: at most as many as it worked on at
// once. A command that fails inside EXEC
// does not keep the others from taking effect, and a reply to EXEC that is lost is an error of what has been
// applied: in both cases the inbox takes its mark back, and the redelivery applies the message once more.
// Middleware closes all three.
func PipelineMiddleware(client redis.UniversalClient) message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if _, ok := PipelineFromContext(ctx); ok {
				return nil, fmt.Errorf("%w: luatx.PipelineMiddleware inside another transaction: leave one out", ErrNested)
			}
			if mark.In(ctx, mark.Overlap) {
				return nil, errors.New("luatx: luatx.PipelineMiddleware inside inbox.Overlap: replace inbox.Overlap by inbox.SetNX")
			}
			pipe := client.TxPipeline()
			outputs, err := next(ContextWithPipeline(ctx, pipe), msg)
			if err == nil {
				err = message.CheckOutputs(ctx, msg, outputs, mark.In(ctx, mark.SetNX))
			}
			if err != nil {
				pipe.Discard()
				return nil, err
			}
			cmds, err := pipe.Exec(ctx)
			if err := failure(cmds, err); err != nil {
				return nil, &PipelineError{err, cmds}
			}
			return outputs, nil
		}
	})
}

// failure returns the first error of an Exec that is one: go-redis reports an empty reply that stands before it.
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
