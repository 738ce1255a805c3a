package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// CleanupConfig configures a cleanup. InboxCleanup and OutboxCleanup return those of the library's own tables.
type CleanupConfig struct {
	// DB is the database.
	DB *sql.DB
	// Table is the table. Required.
	Table string
	// Retention is how old a row gets. Defaults to 7 days.
	Retention time.Duration
	// Interval is the pause between two rounds. Defaults to 1 minute.
	Interval time.Duration
	// Column says when a row was made, in the database's type for times. Defaults to "created_at".
	Column string
	// Condition says what else must hold of a row: "published = TRUE". It is part of a statement as it stands, and may
	// begin with AND. Required for a table named "outbox"; defaults to none elsewhere.
	Condition string
	// ChunkSize is how many rows a statement deletes at most. Defaults to 500.
	ChunkSize int
	// Dialect defaults to that of the driver.
	Dialect Dialect
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// InboxCleanup returns the cleanup of an inbox: ids are forgotten after the retention, which must be longer than a
// message may be delivered again.
func InboxCleanup(cfg InboxConfig) CleanupConfig {
	if cfg.Table == "" {
		cfg.Table = DefaultInboxTable
	}
	return CleanupConfig{DB: cfg.DB, Table: cfg.Table, Dialect: cfg.Dialect}
}

// OutboxCleanup returns the cleanup of an outbox: published events alone, however old the others are.
func OutboxCleanup(cfg OutboxConfig) CleanupConfig {
	if cfg.Table == "" {
		cfg.Table = DefaultOutboxTable
	}
	return CleanupConfig{DB: cfg.DB, Table: cfg.Table, Dialect: cfg.Dialect, Condition: onlyPublished}
}

const onlyPublished = "published = TRUE"

func (c CleanupConfig) withDefaults() CleanupConfig {
	if c.Retention == 0 {
		c.Retention = 7 * 24 * time.Hour
	}
	if c.Interval == 0 {
		c.Interval = time.Minute
	}
	if c.Column == "" {
		c.Column = "created_at"
	}
	if c.ChunkSize == 0 {
		c.ChunkSize = 500
	}
	c.Condition = strings.TrimSpace(c.Condition)
	if word, rest, _ := strings.Cut(c.Condition, " "); strings.EqualFold(word, "AND") {
		c.Condition = rest
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c CleanupConfig) validate() error {
	switch {
	case c.DB == nil:
		return errors.New("cleanup: CleanupConfig.DB is nil: give the database")
	case c.Retention < 0 || c.Interval < 0 || c.ChunkSize < 0:
		return errors.New("cleanup: CleanupConfig.Retention, Interval and ChunkSize: use 0 for the default, or more")
	case !identifier.MatchString(c.Column):
		return fmt.Errorf("cleanup: CleanupConfig.Column is %q: use a column's name", c.Column)
	case strings.Contains(c.Condition, "?"):
		return errors.New("cleanup: CleanupConfig.Condition has a ?: it cannot have arguments")
	case c.Table == DefaultOutboxTable && c.Condition == "":
		return fmt.Errorf("cleanup: CleanupConfig.Condition is empty, and events that wait would be deleted: use OutboxCleanup, or %q", onlyPublished)
	}
	return nil
}

type cleanup struct {
	cfg       CleanupConfig
	dialect   Dialect
	statement string
	args      []any
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
	t, err := c.dialect.table(c.cfg.Table)
	if err != nil {
		return nil, fmt.Errorf("cleanup: CleanupConfig.Table: %w", err)
	}
	condition := c.dialect.Quote + c.cfg.Column + c.dialect.Quote + " < " + c.dialect.Ago
	if c.cfg.Condition != "" {
		condition = "(" + c.cfg.Condition + ") AND " + condition
	}
	for range strings.Count(c.dialect.DeleteSome, "%[2]s") {
		c.args = append(c.args, c.cfg.Retention.Milliseconds())
	}
	c.args = append(c.args, c.cfg.ChunkSize)
	c.statement = c.dialect.statement(c.dialect.DeleteSome, t, condition)
	return c, nil
}

// StartCleanup deletes old rows in the background until ctx ends: a first round at once, and then one an Interval. A
// round deletes in chunks of ChunkSize, each a short transaction of its own, and rests after each for as long as it took,
// so that it neither locks for long nor takes more than half of a connection's time. The channel is closed when it has
// ended; the error is that of the config.
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
				c.cfg.Logger.Error("cleanup: stopped until the next interval", "table", c.cfg.Table, "deleted", n, "error", err)
			}
			if !rest(ctx, c.cfg.Interval) {
				return
			}
		}
	}()
	return ended, nil
}

// Cleanup makes one round, and returns how many rows it has deleted.
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
		deleted += n
		if err != nil || n < c.cfg.ChunkSize {
			return deleted, err
		}
		if !rest(ctx, time.Since(start)) {
			return deleted, ctx.Err()
		}
	}
}

func (c *cleanup) chunk(ctx context.Context) (int, error) {
	tx, err := c.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: c.dialect.Isolation})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after the commit
	result, err := tx.ExecContext(ctx, c.statement, c.args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, err
	}
	return int(n), tx.Commit()
}

// rest waits, and says whether ctx goes on.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
