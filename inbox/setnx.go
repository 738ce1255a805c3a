package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
)

// SetNXConfig configures SetNX. Its zero value works.
type SetNXConfig struct {
	// Retention is how long an id is known. Defaults to 24 hours.
	Retention time.Duration
	// MessageID returns the identity of a message. Messages with the same identity are the same message, whichever
	// aggregate they are about. Its errors are permanent. Defaults to message.IdentityOf: source and id.
	MessageID func(*message.Message) (message.Identity, error)
	// MarkKey names the key of a message's mark. It must return different keys for different identities. Defaults to
	// "inbox:", the source with its colons escaped, a colon and the id, as in inbox:/shop:42.
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

// releaseTimeout bounds what is done about a mark after its handler.
const releaseTimeout = 5 * time.Second

// SetNX marks each message with SET NX before its handler runs, and takes the mark back when the handler fails.
// It is the inbox of the three-step way, and stands outside luatx.PipelineMiddleware.
//
// Its gap: when the process dies after the SET NX and before the EXEC, the message is marked and not applied.
// Its redelivery passes for a duplicate and is acknowledged: the message is lost. Only where a redelivery comes
// after Retention has passed is it applied. That bounds the gap: at most the messages that the process worked on
// when it died, from their SET NX to their EXEC, and no longer than Retention where the broker still has them.
// Middleware, inside luatx.Middleware, has no such gap.
func SetNX(client redis.UniversalClient, cfg SetNXConfig) message.Middleware {
	s := setNX{client, cfg.withDefaults(), redis.NewScript(lua.Source("release"))}
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
			return nil, errors.New("inbox: SetNX inside a transaction: put inbox.SetNX before luatx.PipelineMiddleware, or inbox.Middleware inside luatx.Middleware")
		}
		if mark.In(ctx, mark.Overlap) {
			return nil, errors.New("inbox: inbox.SetNX inside inbox.Overlap: leave one out")
		}
		if mark.In(ctx, mark.SetNX) {
			return nil, errors.New("inbox: inbox.SetNX inside inbox.SetNX would take every message for a duplicate: leave one out")
		}
		id, err := identify(s.cfg.MessageID, msg)
		if err != nil {
			return nil, err
		}
		key, token := s.cfg.MarkKey(id), rand.Text()
		set, err := s.mark(ctx, key, token)
		if err != nil {
			s.takeBack(ctx, key, token) // it may be set, and only the reply was lost
			return nil, fmt.Errorf("inbox setnx: %w", err)
		}
		if !set {
			return nil, nil
		}
		applied := false
		defer func() { // after a panic too
			if !applied {
				s.takeBack(ctx, key, token)
			}
		}()
		outputs, err := next(mark.With(ctx, mark.SetNX), msg)
		applied = err == nil
		return outputs, err
	}
}

// mark sets the mark, and reports whether it is this run's. A request whose reply was lost is sent again by the
// client, and finds the mark of the first one: that is no duplicate.
func (s setNX) mark(ctx context.Context, key, token string) (bool, error) {
	set, err := s.client.SetNX(ctx, key, token, s.cfg.Retention).Result()
	if err != nil || set {
		return set, err
	}
	owner, err := s.client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil // given up in between: its own delivery comes again
	}
	return owner == token, err
}

// takeBack deletes the mark, so that the message is applied when it comes again.
func (s setNX) takeBack(ctx context.Context, key, token string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := s.release.Run(ctx, s.client, []string{key}, token).Err(); err != nil {
		s.cfg.Logger.Error("inbox: the mark of a failed message may stay until it expires: the message would pass for a duplicate", "key", key, "error", err)
	}
}
