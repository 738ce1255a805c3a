package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

// slow is the maximum 99th percentile of a writer's transactions during a cleanup on an idle machine.
const slow = 100 * time.Millisecond

// TestCleanupLocksAtMostOneChunk also measures how long writers wait, with LUATX_VERIFY. No other test of this package runs at
// the same time.
func TestCleanupLocksAtMostOneChunk(t *testing.T) {
	t.Run("postgres", func(t *testing.T) { cleanUp(t, sqltest.Postgres(t), size(4_000, 1_000_000)) })
	t.Run("mariadb", func(t *testing.T) { cleanUp(t, sqltest.MariaDB(t), size(4_000, 100_000)) })
	t.Run("sqlite", func(t *testing.T) { cleanUp(t, sqltest.SQLite(t), size(4_000, 100_000)) })
}

func cleanUp(t *testing.T, d sqltest.Database, rows int) {
	t.Helper()
	db, cfg := d.Open(t), childOf(d)
	tables(t, db, cfg)
	age(t, d, db, cfg.Inbox, rows)
	w := writers{t: t, db: db, cfg: cfg}
	stop := w.start(4)
	waitFor(t, "the writers to run", time.Minute, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.waits) > 0
	})
	observed := &observedDriver{inner: db.Driver(), dsn: d.DSN}
	cleaning := sql.OpenDB(observed)
	defer func() { _ = cleaning.Close() }()
	start := time.Now()
	deleted, err := sqltx.Cleanup(t.Context(), sqltx.InboxCleanup(sqltx.InboxConfig{DB: cleaning, Table: cfg.Inbox, Dialect: d.Dialect}))
	took := time.Since(start)
	stop()
	if err != nil || deleted != rows {
		t.Errorf("%d of %d rows deleted, %v", deleted, rows, err)
	}
	const chunk = 500
	if most, n := slices.Max(observed.deleted), len(observed.deleted); most != chunk || n != rows/chunk+1 {
		t.Errorf("%d rows were deleted in %d transactions of at most %d rows, want %d of at most %d", rows, n, most, rows/chunk+1, chunk)
	}
	p50, p99, n := w.quantile(0.5), w.quantile(0.99), len(w.waits)
	t.Logf("%d rows in %v; %d transactions meanwhile: p50 %v, p99 %v, at most %v", rows, took, n, p50, p99, w.quantile(1))
	if long && (p99 > slow || n < 20) {
		t.Errorf("p99 of %d transactions is %v, want at most %v", n, p99, slow)
	}
}

// age fills an inbox with ids that are older than its retention.
func age(t *testing.T, d sqltest.Database, db *sql.DB, table string, rows int) {
	t.Helper()
	moment := strings.ReplaceAll(d.Dialect.Ago, "?", fmt.Sprint((30 * 24 * time.Hour).Milliseconds()))
	for from := 0; from < rows; from += 5000 {
		values := make([]string, min(5000, rows-from))
		for i := range values {
			values[i] = fmt.Sprintf("('old', '/age', 'id-%08d', %s)", from+i, moment)
		}
		execute(t, db, "INSERT INTO "+table+" (subscriber, source, message_id, created_at) VALUES "+strings.Join(values, ", "))
	}
}

// writers handle messages one after the other with short pauses, and record the duration of each transaction.
type writers struct {
	t   *testing.T
	db  *sql.DB
	cfg childConfig

	mu    sync.Mutex
	waits []time.Duration
}

func (w *writers) start(n int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { w.run(ctx, i) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

func (w *writers) run(ctx context.Context, writer int) {
	process := sqltx.TxMiddleware(w.db, nil).Wrap(sqltx.InboxMiddleware(sqltx.InboxConfig{DB: w.db, Table: w.cfg.Inbox, Subscriber: "new"}).Wrap(
		func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			_, err := sqltx.ExecutorFromContext(ctx, w.db).ExecContext(ctx, "INSERT INTO "+w.cfg.Business+" (id) VALUES ('"+msg.ID()+"')")
			return nil, err
		}))
	for i := 0; ctx.Err() == nil; i++ {
		start := time.Now()
		_, err := process(ctx, message.New(nil, message.Attributes{message.AttrID: fmt.Sprintf("w%d-%d", writer, i)}, nil))
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			w.t.Error(err)
			return
		}
		w.mu.Lock()
		w.waits = append(w.waits, time.Since(start))
		w.mu.Unlock()
		<-time.After(time.Millisecond)
	}
}

func (w *writers) quantile(q float64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waits) == 0 {
		return 0
	}
	slices.Sort(w.waits)
	return w.waits[min(int(q*float64(len(w.waits))), len(w.waits)-1)]
}
