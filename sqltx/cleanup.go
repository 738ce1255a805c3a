package sqltx

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/sleep"
)

// CleanupConfig configures a cleanup. InboxCleanup and OutboxCleanup return the configs for the library's own tables.
//
// If the table has a column named published, in upper or lower case, a cleanup deletes a row only if that column is TRUE,
// regardless of Condition, so it never deletes an unpublished event. The cleanup reads the columns from the database in the
// deleting transaction, so its user needs the right to SELECT from the table.
type CleanupConfig struct {
	// DB is the database.
	DB *sql.DB
	// Table is the name of the table, with or without a schema. Required.
	Table string
	// Retention is the age from which a row is deleted. Defaults to 7 days.
	Retention time.Duration
	// Interval is the pause between two rounds. Defaults to 1 minute.
	Interval time.Duration
	// Column is the column with the creation time of a row, in the database's type for times. Defaults to "created_at".
	Column string
	// Condition is a further SQL condition for deleting a row, for example "kind = 'audit'". It may begin with AND and has no
	// arguments. Defaults to none.
	Condition string
	// ChunkSize is the maximum number of rows that one statement deletes. Defaults to 500.
	ChunkSize int
	// Dialect defaults to that of the driver.
	Dialect Dialect
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// InboxCleanup returns the cleanup of an inbox, which forgets ids after the retention. The retention must be longer than the time
// in which a message may be delivered again.
func InboxCleanup(cfg InboxConfig) CleanupConfig {
	return CleanupConfig{DB: cfg.DB, Table: cmp.Or(cfg.Table, DefaultInboxTable), Dialect: cfg.Dialect}
}

// OutboxCleanup returns the cleanup of an outbox. It deletes only published events, regardless of the age of others.
func OutboxCleanup(cfg OutboxConfig) CleanupConfig {
	return CleanupConfig{DB: cfg.DB, Table: cmp.Or(cfg.Table, DefaultOutboxTable), Dialect: cfg.Dialect}
}

var leadingAnd = regexp.MustCompile(`(?i)^AND\b\s*`)

func (c CleanupConfig) withDefaults() CleanupConfig {
	c.Retention = cmp.Or(c.Retention, 7*24*time.Hour)
	c.Interval = cmp.Or(c.Interval, time.Minute)
	c.Column = cmp.Or(c.Column, "created_at")
	c.ChunkSize = cmp.Or(c.ChunkSize, 500)
	c.Condition = leadingAnd.ReplaceAllString(strings.TrimSpace(c.Condition), "")
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c CleanupConfig) validate() error {
	switch {
	case c.DB == nil:
		return errors.New("cleanup: CleanupConfig.DB is nil; set the database")
	case min(c.Retention, c.Interval) < 0 || c.ChunkSize < 0:
		return errors.New("cleanup: CleanupConfig.Retention, Interval or ChunkSize is negative; use 0 for the default, or more")
	case !identifier.MatchString(c.Column):
		return fmt.Errorf("cleanup: CleanupConfig.Column is %q; use a column's name", c.Column)
	case strings.Contains(c.Condition, "?"):
		return errors.New("cleanup: CleanupConfig.Condition has a ?; write the value into the condition")
	}
	return nil
}

type cleanup struct {
	cfg     CleanupConfig
	dialect Dialect
	table   table
}

func newCleanup(cfg CleanupConfig) (*cleanup, error) {
	c := &cleanup{cfg: cfg.withDefaults()}
	if err := c.cfg.validate(); err != nil {
		return nil, err
	}
	var err error
	if c.dialect, err = dialectOr(cfg.Dialect, cfg.DB); err != nil {
		return nil, fmt.Errorf("cleanup: CleanupConfig: %w", err)
	}
	if c.table, err = c.dialect.table(c.cfg.Table); err != nil {
		return nil, fmt.Errorf("cleanup: CleanupConfig.Table: %w", err)
	}
	return c, nil
}

// StartCleanup deletes old rows in the background until ctx ends: in a first round at once, and then in one round per Interval. A
// round deletes chunks of ChunkSize, each in a short transaction. It pauses after each chunk for as long as the chunk took, so
// that it holds locks only briefly and uses at most half of a connection's time. The returned channel is closed after the cleanup
// has ended. The error is that of an invalid config.
func StartCleanup(ctx context.Context, cfg CleanupConfig) (done <-chan struct{}, err error) {
	c, err := newCleanup(cfg)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if n, err := c.round(ctx); err != nil && ctx.Err() == nil {
				c.cfg.Logger.Error("cleanup: round failed", "table", c.cfg.Table, "deleted", n, "error", err)
			}
			if !sleep.For(ctx, c.cfg.Interval) {
				return
			}
		}
	}()
	return ended, nil
}

// Cleanup runs one round and returns the number of deleted rows.
func Cleanup(ctx context.Context, cfg CleanupConfig) (int, error) {
	c, err := newCleanup(cfg)
	if err != nil {
		return 0, err
	}
	return c.round(ctx)
}

func (c *cleanup) round(ctx context.Context) (deleted int, err error) {
	for {
		start := time.Now()
		n, err := c.chunk(ctx)
		deleted += int(n)
		if err != nil || int(n) < c.cfg.ChunkSize {
			return deleted, err
		}
		if !sleep.For(ctx, time.Since(start)) {
			return deleted, ctx.Err()
		}
	}
}

// chunk deletes up to ChunkSize rows. It reads the columns and deletes in one transaction, so the table cannot change in between.
func (c *cleanup) chunk(ctx context.Context) (deleted int64, err error) {
	err = inTx(ctx, c.cfg.DB, c.dialect.Isolation, func(tx *sql.Tx) error {
		columns, err := c.columns(ctx, tx)
		if err != nil {
			return fmt.Errorf("cleanup: read the columns of %s: %w", c.cfg.Table, err)
		}
		statement, args := c.statement(columns)
		deleted, err = sqlTransaction{tx}.Exec(ctx, statement, args...)
		return err
	})
	if err != nil {
		return 0, err // the transaction was not committed, so no row is deleted
	}
	return deleted, nil
}

// columns returns the names of the table's columns. A query resolves the table's name exactly as the DELETE does.
func (c *cleanup) columns(ctx context.Context, tx *sql.Tx) ([]string, error) {
	rows, err := tx.QueryContext(ctx, c.dialect.statement("SELECT * FROM %[1]s WHERE 1 = 0", c.table))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	return columns, rows.Err()
}

// statement returns the DELETE for a table with these columns, and its arguments.
func (c *cleanup) statement(columns []string) (string, []any) {
	conditions := []string{c.quote(c.cfg.Column) + " < " + c.dialect.Ago}
	for _, column := range columns {
		if strings.EqualFold(column, "published") {
			conditions = append(conditions, c.quote(column)+" = TRUE")
		}
	}
	if c.cfg.Condition != "" {
		conditions = append(conditions, "("+c.cfg.Condition+")")
	}
	var args []any
	for range strings.Count(c.dialect.DeleteSome, "%[2]s") {
		args = append(args, c.cfg.Retention.Milliseconds())
	}
	args = append(args, c.cfg.ChunkSize)
	return c.dialect.statement(c.dialect.DeleteSome, c.table, strings.Join(conditions, " AND ")), args
}

func (c *cleanup) quote(name string) string { return c.dialect.Quote + name + c.dialect.Quote }
