package pipeline

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
)

// SetNXConfig configures SetNX. The zero value is usable.
type SetNXConfig struct {
	// Retention is how long SetNX remembers an id. Defaults to 24 hours.
	Retention time.Duration
	// MessageID returns the identity of a message. Messages with the same identity are the same message, even if their aggregates
	// differ. Its errors are permanent. Defaults to message.IdentityOf: source and id.
	MessageID func(*message.Message) (message.Identity, error)
	// MarkKey returns the key of a message's mark. It must return different keys for different identities. Defaults to "inbox:",
	// the source with its colons escaped, a colon and the id, as in inbox:/shop:42.
	MarkKey func(message.Identity) string
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

func (cfg SetNXConfig) withDefaults() SetNXConfig {
	if cfg.Retention <= 0 {
		cfg.Retention = 24 * time.Hour
	}
	if cfg.MessageID == nil {
		cfg.MessageID = message.IdentityOf
	}
	if cfg.MarkKey == nil {
		cfg.MarkKey = func(id message.Identity) string { return mark.Key(id.Source, id.ID) }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg
}

// releaseTimeout bounds the request that sets or removes a mark after the handler.
const releaseTimeout = 5 * time.Second

// SetNX is the inbox of pipeline mode. It marks each message with SET NX before the handler runs, and removes the mark if
// the handler fails. Place it outside of Middleware.
//
// If the process dies after SET NX and before EXEC, the message is marked but not applied. A redelivery within Retention
// counts as a duplicate and is acknowledged, so the message is lost. inbox.Middleware has no such gap.
func SetNX(client redis.UniversalClient, cfg SetNXConfig) message.Middleware {
	s := setNX{client, cfg.withDefaults(), redis.NewScript(lua.Script("release", nil))}
	return message.NewMiddleware(s.wrap, message.Traits{Name: mark.SetNXName, Inbox: true})
}

type setNX struct {
	client  redis.UniversalClient
	cfg     SetNXConfig
	release *redis.Script
}

func (s setNX) wrap(next message.ProcessFunc) message.ProcessFunc {
	return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
		if _, ok := luatx.PipelineFromContext(ctx); ok {
			return nil, errors.New("pipeline: pipeline.SetNX inside a transaction; put pipeline.SetNX before pipeline.Middleware, or use inbox.Middleware inside luatx.Middleware")
		}
		if mark.In(ctx, mark.Overlap) {
			return nil, errors.New("pipeline: pipeline.SetNX inside pipeline.Overlap; leave one out")
		}
		if mark.In(ctx, mark.SetNX) {
			return nil, errors.New("pipeline: pipeline.SetNX inside pipeline.SetNX treats every message as a duplicate; leave one out")
		}
		id, err := identity.Of(s.cfg.MessageID, msg)
		if err != nil {
			return nil, fmt.Errorf("pipeline: %w", err)
		}
		key, token := s.cfg.MarkKey(id), rand.Text()
		set, err := s.mark(ctx, key, token)
		if err != nil {
			s.removeMark(ctx, key, token) // the mark may be set even though the reply was lost
			return nil, fmt.Errorf("pipeline: SET NX: %w", err)
		}
		if !set {
			return nil, nil
		}
		applied := false
		defer func() { // runs after a panic, too
			if !applied {
				s.removeMark(ctx, key, token)
			}
		}()
		outputs, err := next(mark.With(ctx, mark.SetNX), msg)
		applied = err == nil
		return outputs, err
	}
}

// mark sets the mark and reports whether this run set it. If a reply is lost, the client sends the request again and finds the
// mark of its first attempt, which is not a duplicate.
func (s setNX) mark(ctx context.Context, key, token string) (bool, error) {
	set, err := s.client.SetNX(ctx, key, token, s.cfg.Retention).Result()
	if err != nil || set {
		return set, err
	}
	owner, err := s.client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil // the other run has failed, and its own delivery is repeated
	}
	return owner == token, err
}

// removeMark deletes the mark, so that the redelivery is applied.
func (s setNX) removeMark(ctx context.Context, key, token string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := s.release.Run(ctx, s.client, []string{key}, token).Err(); err != nil {
		s.cfg.Logger.Error("pipeline: mark not removed", "key", key, "error", err)
	}
}
