package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
)

// overlapToken is the value of the marks that Overlap sets. No run of SetNX has this token.
const overlapToken = "scripted"

// Overlap connects both modes while a service moves from SetNX to inbox.Middleware, or back. Place it outside of
// luatx.Middleware. It acknowledges messages that SetNX has marked without running their handler, and sets a mark for SetNX after
// each applied message. Its config must equal that of the replaced SetNX, and its MessageID that of inbox.Middleware. It needs
// two round trips per message. Remove it when Retention has passed since the last process with SetNX ended.
//
// Like SetNX, Overlap treats each marked message as applied, so a message that SetNX has lost stays lost. If it cannot set a
// mark, it logs an error, and a process with SetNX applies a redelivery again.
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
		id, err := identity.Of(o.cfg.MessageID, msg)
		if err != nil {
			return nil, fmt.Errorf("pipeline: %w", err)
		}
		key := o.cfg.MarkKey(id)
		marked, err := o.client.Exists(ctx, key).Result()
		if err != nil {
			return nil, fmt.Errorf("pipeline: overlap: %w", err)
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
		return errors.New("pipeline: pipeline.Overlap inside a transaction; put pipeline.Overlap before luatx.Middleware")
	}
	if mark.In(ctx, mark.SetNX) || mark.In(ctx, mark.Overlap) {
		return errors.New("pipeline: pipeline.Overlap inside another inbox; leave one out")
	}
	return nil
}

// leave sets the mark that SetNX would have set for an applied message.
func (o overlap) leave(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := o.client.SetNX(ctx, key, overlapToken, o.cfg.Retention).Err(); err != nil {
		o.cfg.Logger.Error("pipeline: mark not written", "key", key, "error", err)
	}
}
