package pgx_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	pgxdriver "github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/luatx/luatx/contrib/pgx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

func TestMain(m *testing.M) { sqltest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is a pool with tables for the test.
type bench struct {
	pool   *pgxpool.Pool
	db     *sql.DB
	inbox  sqltx.InboxConfig
	outbox sqltx.OutboxConfig
	table  string
}

func newBench(t *testing.T) bench {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), sqltest.Postgres(t).DSN)
	must(t, err)
	t.Cleanup(pool.Close)
	b := bench{pool: pool, db: stdlib.OpenDBFromPool(pool), table: sqltest.Table("orders")}
	t.Cleanup(func() { _ = b.db.Close() })
	b.inbox = sqltx.InboxConfig{DB: b.db, Table: sqltest.Table("inbox"), Subscriber: "s"}
	b.outbox = sqltx.OutboxConfig{DB: b.db, Table: sqltest.Table("outbox"), Notify: true}
	must(t, errors.Join(b.inbox.Init(t.Context()), b.outbox.Init(t.Context())))
	if _, err := pool.Exec(t.Context(), "CREATE TABLE "+b.table+" (id TEXT PRIMARY KEY, n INTEGER NOT NULL DEFAULT 0)"); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b bench) enter(ctx context.Context, id string) error {
	_, err := pgx.ExecutorFromContext(ctx, b.pool).Exec(ctx, "INSERT INTO "+b.table+" (id) VALUES ($1)", id)
	return err
}

func (b bench) count(t *testing.T, table string) (n int) {
	t.Helper()
	must(t, b.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

var errHandler = errors.New("no")

// TestRowsInboxAndOutboxCommitTogetherOnce also checks that nothing commits after an error or a panic.
func TestRowsInboxAndOutboxCommitTogetherOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	how := ""
	process := pgx.TxMiddleware(b.pool, nil).Wrap(sqltx.InboxMiddleware(b.inbox).Wrap(sqltx.OutboxMiddleware(b.outbox).Wrap(
		func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
			if err := b.enter(ctx, msg.ID()); err != nil {
				return nil, err
			}
			switch how {
			case "error":
				return nil, errHandler
			case "panic":
				panic(errHandler)
			}
			return []*message.Message{message.New("data", message.Attributes{message.AttrSource: "/s", message.AttrType: "t"}, nil)}, nil
		})))
	for i, step := range []struct {
		how  string
		rows int
	}{{"error", 0}, {"panic", 0}, {"", 1}, {"error", 1}, {"", 1}} {
		how = step.how
		func() {
			defer func() { _ = recover() }() // a Router does this
			outputs, err := process(t.Context(), message.New(nil, message.Attributes{message.AttrID: "1"}, nil))
			if len(outputs) != 0 || step.rows == 1 && err != nil {
				t.Errorf("%d: %v, %v", i, outputs, err)
			}
			if step.rows == 0 && !errors.Is(err, errHandler) {
				t.Errorf("%d: %v", i, err)
			}
		}()
		for _, table := range []string{b.table, b.inbox.Table, b.outbox.Table} {
			if n := b.count(t, table); n != step.rows {
				t.Errorf("%d: %d rows in %s, want %d", i, n, table, step.rows)
			}
		}
	}
}

func TestContextCarriesTheTransactionAndNestsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, ok := pgx.TxFromContext(t.Context()); ok || pgx.ExecutorFromContext(t.Context(), b.pool) != pgx.Executor(b.pool) {
		t.Error("a transaction out of nothing")
	}
	tx, err := b.pool.Begin(t.Context())
	must(t, err)
	ctx := pgx.ContextWithTx(t.Context(), tx)
	if got, ok := pgx.TxFromContext(ctx); !ok || got != tx {
		t.Error("another transaction")
	}
	must(t, b.enter(ctx, "gone"))
	_ = tx.Rollback(t.Context()) // begun by the test

	other, err := pgxpool.New(t.Context(), b.pool.Config().ConnString())
	must(t, err)
	defer other.Close()
	err = pgx.Transact(t.Context(), b.pool, nil, func(ctx context.Context) error {
		if err := pgx.Transact(ctx, b.pool, nil, func(ctx context.Context) error { return errors.Join(b.enter(ctx, "in"), errHandler) }); !errors.Is(err, errHandler) {
			t.Error(err)
		}
		for name, err := range map[string]error{
			"another pool":      pgx.Transact(ctx, other, nil, func(context.Context) error { return nil }),
			"another isolation": pgx.Transact(ctx, b.pool, &pgx.TxOptions{TxOptions: pgxdriver.TxOptions{IsoLevel: pgxdriver.Serializable}}, func(context.Context) error { return nil }),
			"sqltx":             sqltx.Transact(ctx, b.db, nil, func(context.Context) error { return nil }),
		} {
			if err == nil {
				t.Errorf("%s was nested", name)
			}
		}
		return b.enter(ctx, "out")
	})
	if n := b.count(t, b.table); err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
	err = sqltx.Transact(t.Context(), b.db, nil, func(ctx context.Context) error {
		return pgx.Transact(ctx, b.pool, nil, func(context.Context) error { return nil })
	})
	if err == nil {
		t.Error("pgx inside of sqltx")
	}
}

// TestSerializationFailureIsRetried runs two transactions that read the rows that the other one writes.
func TestSerializationFailureIsRetried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.pool.Exec(t.Context(), "INSERT INTO "+b.table+" (id) VALUES ('a')"); err != nil {
		t.Fatal(err)
	}
	opts := &pgx.TxOptions{TxOptions: pgxdriver.TxOptions{IsoLevel: pgxdriver.Serializable}, Retries: 10}
	var met, all sync.WaitGroup
	met.Add(2)
	for range 2 {
		all.Go(func() {
			meet := sync.OnceFunc(func() { met.Done(); met.Wait() })
			err := pgx.Transact(t.Context(), b.pool, opts, func(ctx context.Context) error {
				var n int
				db := pgx.ExecutorFromContext(ctx, b.pool)
				if err := db.QueryRow(ctx, "SELECT n FROM "+b.table+" WHERE id = 'a'").Scan(&n); err != nil {
					return err
				}
				meet()
				_, err := db.Exec(ctx, "UPDATE "+b.table+" SET n = $1 WHERE id = 'a'", n+1)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var n int
	if err := b.pool.QueryRow(t.Context(), "SELECT n FROM "+b.table).Scan(&n); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
}

// TestListeningPublisherHandsEventsOutAtOnce uses a long poll interval.
func TestListeningPublisherHandsEventsOutAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	listening := make(chan struct{}, 100)
	listen := pgx.Listen(b.pool)
	p := sqltx.NewOutboxPublisher(sqltx.OutboxPublisherConfig{
		DB: b.db, Table: b.outbox.Table, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Listen: func(ctx context.Context, channel string, wake func()) error {
			return listen(ctx, channel, func() { wake(); listening <- struct{}{} })
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	events, err := p.Source(ctx)
	must(t, err)
	<-listening
	for range 3 {
		start := time.Now()
		err := pgx.Transact(t.Context(), b.pool, nil, func(ctx context.Context) error {
			return sqltx.Emit(ctx, b.outbox, message.New("data", message.Attributes{message.AttrSource: "/s", message.AttrType: "t"}, nil))
		})
		must(t, err)
		select {
		case msg := <-events:
			msg.Ack()
		case <-time.After(20 * time.Second):
			t.Fatal("nobody woke")
		}
		t.Logf("handed out after %v", time.Since(start))
	}
	cancel()
	p.Wait()
}
