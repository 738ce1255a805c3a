// Package inbox makes each message take effect once, even if it is delivered several times.
package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
)

// Config configures the inbox of a transaction. The zero value is usable. luatx.Config.Retention sets how long an id is
// remembered.
type Config struct {
	// Scope names the handler for which a message counts once. Defaults to the namespace of the Transactor and the name of the
	// handler, so that each handler of a message applies it.
	Scope string
	// MessageID returns the identity of a message. Messages with the same identity, scope and aggregate are the same message. Its
	// errors are permanent. Defaults to message.IdentityOf: source and id.
	MessageID func(*message.Message) (message.Identity, error)
}

// Middleware claims the identity of each message, within the scope and the aggregate, for the surrounding transaction. The commit
// decides whether the message is new, in the same script as its effect. A duplicate is acknowledged.
//
// A duplicate may run the handler, but has no effect in the transaction. If the handler has effects outside of the transaction,
// add Precheck after Middleware.
func Middleware(cfg Config) message.Middleware {
	if cfg.MessageID == nil {
		cfg.MessageID = message.IdentityOf
	}
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			tx, ok := luatx.TxFromContext(ctx)
			if !ok {
				return nil, fmt.Errorf("inbox: %w", misplaced(ctx, "inbox.Middleware"))
			}
			found, err := identity.Of(cfg.MessageID, msg)
			if err != nil {
				return nil, fmt.Errorf("inbox: %w", err)
			}
			id := luatx.MessageID{Scope: cfg.Scope, Source: found.Source, ID: found.ID}
			if id.Scope == "" {
				handler, _ := message.HandlerNameFromContext(ctx)
				id.Scope = tx.Namespace() + "/" + handler
			}
			if err := tx.Claim(id); err != nil {
				return nil, fmt.Errorf("inbox: %w", err)
			}
			return next(mark.With(ctx, mark.Inbox), msg)
		}
	}, message.Traits{Name: "inbox.Middleware", Inbox: true})
}

// misplaced returns the error for a missing transaction around a middleware.
func misplaced(ctx context.Context, name string) error {
	if _, ok := luatx.PipelineFromContext(ctx); ok {
		return fmt.Errorf("%s inside pipeline.Middleware: replace %s by pipeline.SetNX, before pipeline.Middleware, or pipeline.Middleware by luatx.Middleware", name, name)
	}
	return fmt.Errorf("no transaction in context; put luatx.Middleware before %s", name)
}

// Precheck checks before the handler runs whether the identity that Middleware has claimed, or the position that Position has
// claimed, was committed, and then skips the handler. The check needs a round trip. Use it for handlers that send mail, charge a
// card or take long. It narrows the window in which such a handler runs twice, but cannot close it. Place it inside
// Middleware or Position.
func Precheck() message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			tx, ok := luatx.TxFromContext(ctx)
			if !ok {
				return nil, errors.New("inbox: no transaction in context; put luatx.Middleware and inbox.Middleware or inbox.Position before inbox.Precheck")
			}
			if !mark.In(ctx, mark.Inbox) {
				return nil, errors.New("inbox: inbox.Precheck before inbox.Middleware or inbox.Position; put one of them before it")
			}
			seen, err := tx.Seen(ctx)
			if err != nil {
				return nil, fmt.Errorf("inbox: %w", err)
			}
			if seen {
				return nil, nil // the commit finds the mark and acknowledges the duplicate
			}
			return next(ctx, msg)
		}
	})
}
