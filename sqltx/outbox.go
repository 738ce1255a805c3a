package sqltx

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/luatx/luatx/message"
)

// OutboxConfig configures an outbox.
type OutboxConfig struct {
	// DB is the database for Init, and the source of the dialect. It may be nil if Dialect is set and Init is not called.
	DB *sql.DB
	// Table is the name of the table, with or without a schema. Defaults to "outbox".
	Table string
	// Topic is the destination of an output that has none. Defaults to none: the publisher decides.
	Topic string
	// OrderingKey returns the ordering key of an output, or "" for none. Events of one key are published one after the other. At
	// most 255 bytes. Defaults to the partitionkey attribute of the output.
	OrderingKey func(output *message.Message) string
	// Publisher is woken after each commit of this process with events, so that they do not wait for the next poll.
	Publisher *OutboxPublisher
	// Notify wakes the publishers of other processes that use OutboxPublisherConfig.Listen, at the commit. It works only on
	// PostgreSQL, which commits transactions that notify one at a time.
	Notify bool
	// Dialect defaults to that of the driver.
	Dialect Dialect
}

// outboxKey is the context key that is set inside an outbox, which stores the outputs.
type outboxKey struct{}

type outbox struct {
	cfg     OutboxConfig
	dialect Dialect
	table   table
	notify  string
}

func newOutbox(cfg OutboxConfig) (*outbox, error) {
	cfg.Table = cmp.Or(cfg.Table, DefaultOutboxTable)
	if cfg.OrderingKey == nil {
		cfg.OrderingKey = (*message.Message).PartitionKey
	}
	o := &outbox{cfg: cfg}
	var err error
	if o.dialect, err = dialectOr(cfg.Dialect, cfg.DB); err != nil {
		return nil, fmt.Errorf("outbox: OutboxConfig: %w", err)
	}
	if o.table, err = o.dialect.table(cfg.Table); err != nil {
		return nil, fmt.Errorf("outbox: OutboxConfig.Table: %w", err)
	}
	if cfg.Notify && o.dialect.Notify == "" {
		return nil, fmt.Errorf("outbox: OutboxConfig.Notify is set, but %s has no notifications; leave it out, publishers poll", o.dialect.Name)
	}
	o.notify = o.dialect.Bind(o.dialect.Notify)
	return o, nil
}

// OutboxMiddleware writes the outputs of the handler to a table in the handler's transaction, encoded by the Marshaler of the
// Engine, and does not pass them on. An OutboxPublisher hands them out after the commit. An output without an id gets one that is
// derived from the input and the output's position, so that another run of the handler creates the same event. Place
// OutboxMiddleware inside InboxMiddleware.
func OutboxMiddleware(cfg OutboxConfig) message.Middleware {
	o, err := newOutbox(cfg)
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
		return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if err != nil {
				return nil, err
			}
			tx, ok := scopeFrom(ctx)
			if !ok {
				return nil, errors.New("outbox: no transaction in context; put TxMiddleware before it")
			}
			outputs, err := next(context.WithValue(ctx, outboxKey{}, true), msg)
			if err != nil {
				return nil, err
			}
			if len(outputs) == 0 {
				return nil, nil
			}
			rows := make([]row, len(outputs))
			for i, output := range outputs {
				if rows[i], err = o.row(ctx, output, func() string { return eventID(ctx, msg, i) }); err != nil {
					return nil, message.Permanent(fmt.Errorf("outbox: %w", err))
				}
			}
			return nil, o.write(ctx, tx, rows)
		}
	}, message.Traits{Name: "sqltx.OutboxMiddleware", Outbox: true})
}

// Emit writes messages to the outbox in the transaction of ctx, for work outside of handlers, such as a function that Transact
// runs. A message without an id gets a random one.
func Emit(ctx context.Context, cfg OutboxConfig, outputs ...*message.Message) error {
	o, err := newOutbox(cfg)
	if err != nil {
		return err
	}
	tx, ok := scopeFrom(ctx)
	if !ok {
		return errors.New("outbox: no transaction in context; call it inside Transact")
	}
	if len(outputs) == 0 {
		return nil
	}
	rows := make([]row, len(outputs))
	for i, output := range outputs {
		if rows[i], err = o.row(ctx, output, message.NewID); err != nil {
			return fmt.Errorf("outbox: %w", err)
		}
	}
	return o.write(ctx, tx, rows)
}

// row returns the row of an output, which it does not change.
func (o *outbox) row(ctx context.Context, output *message.Message, id func() string) (row, error) {
	encoded, err := message.EncodeOutput(ctx, output)
	if err != nil {
		return row{}, err
	}
	event := message.New(encoded.Data, maps.Clone(encoded.Attributes), nil)
	if event.ID() == "" {
		event.Attributes[message.AttrID] = id()
	}
	r, err := encode(event)
	if err != nil {
		return row{}, err
	}
	r.topic = cmp.Or(r.topic, o.cfg.Topic)
	r.key = o.cfg.OrderingKey(output)
	for _, part := range []struct{ name, text string }{{"topic", r.topic}, {"event type", r.eventType}, {"ordering key", r.key}} {
		if err := storable(part.name, part.text); err != nil {
			return row{}, err
		}
	}
	return r, nil
}

// insertAtOnce is the maximum number of rows that one statement inserts.
const insertAtOnce = 100

// write inserts rows in their order.
func (o *outbox) write(ctx context.Context, tx *scope, rows []row) error {
	for len(rows) > 0 {
		n := min(len(rows), insertAtOnce)
		values := strings.TrimSuffix(strings.Repeat("(?, ?, ?, ?, ?, ?, NOW_MS), ", n), ", ")
		insert := o.dialect.statement("INSERT INTO %[1]s (topic, event_type, data, data_base64, attributes, ordering_key, next_attempt_at) VALUES "+values, o.table)
		args := make([]any, 0, 6*n)
		for _, r := range rows[:n] {
			args = append(args, r.topic, r.eventType, r.data, r.base64, r.attributes, sql.NullString{String: r.key, Valid: r.key != ""})
		}
		if _, err := tx.exec.Exec(ctx, insert, args...); err != nil {
			return fmt.Errorf("outbox: insert: %w", err)
		}
		rows = rows[n:]
	}
	if o.cfg.Notify { // the commit combines any number of notifications
		if _, err := tx.exec.Exec(ctx, o.notify, o.table.channel()); err != nil {
			return fmt.Errorf("outbox: notify: %w", err)
		}
	}
	if o.cfg.Publisher != nil {
		tx.afterCommit(o.cfg.Publisher.Wake)
	}
	return nil
}

// channel returns the notification channel of a table.
func (t table) channel() string { return "luatx_" + t.plain }

// eventID derives an id from the identity of the input, its handler and the output's position. If the input has no identity, the
// id is random.
func eventID(ctx context.Context, input *message.Message, position int) string {
	identity, ok := ctx.Value(identityKey{input}).(message.Identity)
	if !ok {
		var err error
		if identity, err = message.IdentityOf(input); err != nil {
			return message.NewID()
		}
	}
	handler, _ := message.HandlerNameFromContext(ctx)
	hash := sha256.New()
	for _, part := range []string{handler, identity.Source, identity.ID} {
		_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash never fails
		_, _ = hash.Write([]byte(part))
	}
	sum := hash.Sum(binary.BigEndian.AppendUint64(nil, uint64(position))) //nolint:gosec // a position in a slice
	whole := sha256.Sum256(sum)
	return base32.StdEncoding.EncodeToString(whole[:])[:26]
}
