package sqltx

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/luatx/luatx/message"
)

// InboxConfig configures an inbox.
type InboxConfig struct {
	// DB is the database for Init, and the source of the dialect. It may be nil if Dialect is set and Init is not called.
	DB *sql.DB
	// Table is the name of the table, with or without a schema. Defaults to "processed_messages".
	Table string
	// Subscriber names the handler for which a message counts once. Defaults to the name of the handler in the Router. At most
	// 255 bytes.
	Subscriber string
	// MessageID returns the identity of a message. Messages with the same identity and subscriber are the same message. Its
	// errors are permanent. Source and ID have at most 255 bytes each. Defaults to message.IdentityOf: source and id.
	MessageID func(*message.Message) (message.Identity, error)
	// Dialect defaults to that of the driver.
	Dialect Dialect
}

// The default names of the tables.
const (
	DefaultInboxTable  = "processed_messages"
	DefaultOutboxTable = "outbox"
)

// maxKey is the maximum size of the texts in an inbox's key and of an ordering key, in bytes. Every dialect can index that much.
const maxKey = 255

type inbox struct {
	cfg     InboxConfig
	dialect Dialect
	table   table
	insert  string
}

func newInbox(cfg InboxConfig) (*inbox, error) {
	cfg.Table = cmp.Or(cfg.Table, DefaultInboxTable)
	if cfg.MessageID == nil {
		cfg.MessageID = message.IdentityOf
	}
	i := &inbox{cfg: cfg}
	var err error
	if i.dialect, err = dialectOr(cfg.Dialect, cfg.DB); err != nil {
		return nil, fmt.Errorf("inbox: InboxConfig: %w", err)
	}
	if i.table, err = i.dialect.table(cfg.Table); err != nil {
		return nil, fmt.Errorf("inbox: InboxConfig.Table: %w", err)
	}
	i.insert = i.dialect.statement("INSERT INTO %[1]s (subscriber, source, message_id) VALUES (?, ?, ?)%[2]s", i.table, i.dialect.OnDuplicate)
	return i, nil
}

// identityKey is the context key of the identity that an inbox has claimed for a message. Ids of events are derived from it.
type identityKey struct{ of *message.Message }

// claimKey is the context key of a claimed message. A second inbox inside the first one would mistake its mark for that of an
// earlier delivery.
type claimKey struct{ table, subscriber, source, id string }

// InboxMiddleware makes a message take effect once: it inserts the identity of the message into a table in the handler's
// transaction. If the table already has the identity, the handler does not run, and the message is acknowledged. A failed handler
// leaves no mark. Place InboxMiddleware inside TxMiddleware.
//
// The inbox remembers a message until its row is deleted; see Cleanup.
func InboxMiddleware(cfg InboxConfig) message.Middleware {
	i, err := newInbox(cfg)
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if err != nil {
				return nil, err
			}
			tx, ok := scopeFrom(ctx)
			if !ok {
				return nil, errors.New("inbox: no transaction in context; put TxMiddleware before it")
			}
			key, err := i.key(ctx, msg)
			if err != nil {
				return nil, message.Permanent(err)
			}
			if ctx.Value(key) != nil {
				return nil, errors.New("inbox: InboxMiddleware inside InboxMiddleware; leave one out")
			}
			affected, err := tx.exec.Exec(ctx, i.insert, key.subscriber, key.source, key.id)
			if err != nil {
				return nil, fmt.Errorf("inbox: %w", err)
			}
			if affected != 1 {
				return nil, nil // already handled
			}
			ctx = context.WithValue(ctx, identityKey{msg}, message.Identity{Source: key.source, ID: key.id})
			outputs, err := next(context.WithValue(ctx, key, true), msg)
			if err == nil && ctx.Value(outboxKey{}) == nil {
				err = message.CheckOutputs(ctx, msg, outputs, true)
			}
			if err != nil {
				return nil, err
			}
			return outputs, nil
		}
	}, message.Traits{Name: "sqltx.InboxMiddleware", Inbox: true})
}

// key returns the key that identifies the message in the inbox.
func (i *inbox) key(ctx context.Context, msg *message.Message) (claimKey, error) {
	id, err := i.cfg.MessageID(msg)
	if err != nil {
		return claimKey{}, fmt.Errorf("inbox: %w", err)
	}
	key := claimKey{table: i.table.quoted, subscriber: i.cfg.Subscriber, source: id.Source, id: id.ID}
	if key.id == "" {
		return key, errors.New("inbox: InboxConfig.MessageID returned an identity without an ID; return an ID or an error")
	}
	if key.subscriber == "" {
		if key.subscriber, _ = message.HandlerNameFromContext(ctx); key.subscriber == "" {
			return key, errors.New("inbox: InboxConfig.Subscriber is empty, and no Router provides a handler's name; set Subscriber")
		}
	}
	for _, part := range []struct{ name, text string }{{"Subscriber", key.subscriber}, {"message source", key.source}, {"message id", key.id}} {
		if err := storable(part.name, part.text); err != nil {
			return key, fmt.Errorf("inbox: %w", err)
		}
	}
	return key, nil
}

// storable returns an error unless every dialect can store a text unchanged.
func storable(name, text string) error {
	switch {
	case len(text) > maxKey:
		return fmt.Errorf("%s has %d bytes; use at most %d", name, len(text), maxKey)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return fmt.Errorf("%s %q is not storable text; use UTF-8 without zero bytes", name, text)
	}
	return nil
}
