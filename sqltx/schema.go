package sqltx

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
)

// Migrations holds the statements of Init, for the default table names, as files for migration tools: migrations/goose/<dialect>
// and migrations/migrate/<dialect>, with postgres, mysql and sqlite for dialect.
//
//go:embed migrations
var Migrations embed.FS

// Init creates the inbox's table if it does not exist. It may be called any number of times, also by several processes at once.
// Only the Init functions create tables.
func (c InboxConfig) Init(ctx context.Context) error {
	i, err := newInbox(c)
	if err != nil {
		return err
	}
	return i.dialect.init(ctx, c.DB, "inbox", i.table, i.dialect.InboxSchema)
}

// Init creates the outbox's table if it does not exist, like that of an inbox.
func (c OutboxConfig) Init(ctx context.Context) error {
	o, err := newOutbox(c)
	if err != nil {
		return err
	}
	return o.dialect.init(ctx, c.DB, "outbox", o.table, o.dialect.OutboxSchema)
}

// InitInbox is cfg.Init(ctx).
func InitInbox(ctx context.Context, cfg InboxConfig) error { return cfg.Init(ctx) }

// InitOutbox is cfg.Init(ctx).
func InitOutbox(ctx context.Context, cfg OutboxConfig) error { return cfg.Init(ctx) }

func (d Dialect) init(ctx context.Context, db *sql.DB, what string, t table, schema []string) error {
	if db == nil {
		return fmt.Errorf("%s: init: DB is nil", what)
	}
	statements := d.render(t, schema)
	if d.InitLock != "" {
		statements = append([]string{d.InitLock}, statements...)
	}
	err := inTx(ctx, db, sql.LevelDefault, func(tx *sql.Tx) error { return all(ctx, tx, statements) })
	if err != nil {
		return fmt.Errorf("%s: init: %w", what, err)
	}
	return nil
}

func (d Dialect) render(t table, schema []string) []string {
	out := make([]string, len(schema))
	for i, statement := range schema {
		out[i] = fmt.Sprintf(statement, t.quoted, t.plain, t.schema)
	}
	return out
}
