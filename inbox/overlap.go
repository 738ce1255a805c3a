package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
)

// overlapToken is the value of a mark that Overlap has set: no SetNX takes it for its own.
const overlapToken = "scripted"

// Overlap stands around luatx.Middleware while a service changes from SetNX to Middleware, or back: the two keep what
// they know in different places. It acknowledges messages that SetNX has marked, without running their handler, and
// leaves a mark for SetNX behind each message that was applied. The config must be that of the SetNX it follows, and its
// MessageID that of Middleware. It costs two round trips a message, and can go when Retention has passed since the last process with SetNX ended.
//
// It takes a mark for an applied message, as SetNX does: what SetNX has lost in its gap stays lost. A mark that it
// cannot leave is logged: the message counts again only where it comes again, to a process with SetNX.
func Overlap(client redis.UniversalClient, cfg SetNXConfig) message.Middleware {
	o := overlap{client, cfg.withDefaults()}
	return message.NewMiddleware(o.wrap)
}

type overlap struct {
	client redis.UniversalClient
	cfg    SetNXConfig
}

func (o overlap) wrap(next message.ProcessFunc) message.ProcessFunc {
	return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
		if err := o.placed(ctx); err != nil {
			return nil, err
		}
		id, err := identify(o.cfg.MessageID, msg)
		if err != nil {
			return nil, err
		}
		key := o.cfg.MarkKey(id)
		marked, err := o.client.Exists(ctx, key).Result()
		if err != nil {
			return nil, fmt.Errorf("inbox overlap: %w", err)
		}
		if marked > 0 {
			return nil, nil
		}
		outputs, err := next(mark.With(ctx, mark.Overlap), msg)
		if err == nil {
			o.leave(ctx, key)
		}
		return outputs, err
	}
}

func (o overlap) placed(ctx context.Context) error {
	if _, ok := luatx.PipelineFromContext(ctx); ok {
		return errors.New("inbox: inbox.Overlap inside a transaction: put inbox.Overlap before luatx.Middleware")
	}
	if mark.In(ctx, mark.SetNX) || mark.In(ctx, mark.Overlap) {
		return errors.New("inbox: inbox.Overlap inside another inbox: leave one out")
	}
	return nil
}

// leave marks a message that was applied, as SetNX would have.
func (o overlap) leave(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := o.client.SetNX(ctx, key, overlapToken, o.cfg.Retention).Err(); err != nil {
		o.cfg.Logger.Error("inbox: an applied message has no mark for the pipeline mode, which would apply it again", "key", key, "error", err)
	}
}
