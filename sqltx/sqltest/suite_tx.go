package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
)

var errHandler = errors.New("no such product")

func testInit(t *testing.T, s *suite) {
	outbox := sqltx.OutboxConfig{DB: s.db, Table: Table("outbox"), Dialect: s.Dialect}
	inbox := sqltx.InboxConfig{DB: s.db, Table: Table("inbox"), Dialect: s.Dialect}
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs { // concurrently, so that some find existing tables
		all.Go(func() {
			errs[i] = errors.Join(sqltx.InitOutbox(t.Context(), outbox), sqltx.InitInbox(t.Context(), inbox))
		})
	}
	all.Wait()
	must(t, errors.Join(errs...))
	s.wantRows(t, 0, outbox.Table)
	s.wantRows(t, 0, inbox.Table)
	s.exec(t, "DROP TABLE "+outbox.Table)
	s.exec(t, "DROP TABLE "+inbox.Table)
}

// testNames tests that names are quoted, and that names that cannot be quoted are rejected.
func testNames(t *testing.T, s *suite) {
	odd := sqltx.OutboxConfig{DB: s.db, Table: "Order Events-" + Table("x"), Dialect: s.Dialect}
	must(t, odd.Init(t.Context()))
	s.emitTo(t, odd, "", "a")
	p := s.publisher(func(c *sqltx.OutboxPublisherConfig) { c.Table = odd.Table })
	receive(t, s.source(t, p)).Ack()
	eventually(t, "the event is published", func() bool {
		return s.rows(t, s.Dialect.Quote+odd.Table+s.Dialect.Quote, "published = TRUE") == 1
	})
	s.exec(t, "DROP TABLE "+s.Dialect.Quote+odd.Table+s.Dialect.Quote)
	for _, name := range []string{`a"; DROP TABLE b`, "a`b", "a.b.c", "?", strings.Repeat("x", 60), "a\x00"} {
		if err := (sqltx.OutboxConfig{DB: s.db, Table: name, Dialect: s.Dialect}).Init(t.Context()); err == nil {
			t.Errorf("table %q was accepted", name)
		}
	}
}

// testTx tests that a handler's writes exist after the commit and before the ack, and not after an error or a panic.
func testTx(t *testing.T, s *suite) {
	for _, test := range []struct {
		name, want string
		rows       int
		handle     func() error
	}{
		{"success", "acked", 1, func() error { return nil }},
		{"error", "nacked", 0, func() error { return errHandler }},
		{"panic", "nacked", 0, func() error { panic(errHandler) }},
	} {
		router := s.stack(t, func(ctx context.Context, id string) ([]string, error) {
			if err := s.enter(ctx, id); err != nil {
				return nil, err
			}
			if !s.Locked && s.rows(t, s.business, "id = '"+test.name+"'") != 0 {
				t.Errorf("%s: the row is there before the commit", test.name)
			}
			return []string{"e"}, test.handle()
		})
		msg, outcome := order(test.name)
		atAck := -1
		if test.want == "acked" {
			msg.SetAcking(message.NewAcking(func() { *outcome, atAck = "acked", s.rows(t, s.business) }, nil))
		}
		outputs, err := router.Process(t.Context(), msg)
		if *outcome != test.want || len(outputs) != 0 || (err != nil) != (test.rows == 0) {
			t.Errorf("%s: %q, %d outputs, %v", test.name, *outcome, len(outputs), err)
		}
		if err != nil && !errors.Is(err, errHandler) {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.rows == 1 && atAck != 1 {
			t.Errorf("%s: %d rows at the ack", test.name, atAck)
		}
		for _, table := range []string{s.business, s.inbox, s.outbox} {
			if n := s.rows(t, table); n != test.rows {
				t.Errorf("%s: %d rows in %s, want %d", test.name, n, table, test.rows)
			}
			s.exec(t, "DELETE FROM "+table)
		}
	}
}

// testSavepoints tests that a failure inside undoes only the inner part, and that a failure outside undoes both.
func testSavepoints(t *testing.T, s *suite) {
	opts := &sqltx.TxOptions{Dialect: s.Dialect}
	inside := func(ctx context.Context, id string, err error) error {
		return sqltx.Transact(ctx, s.db, opts, func(ctx context.Context) error {
			return errors.Join(s.enter(ctx, id), err)
		})
	}
	for _, test := range []struct {
		name           string
		inner, outer   error
		want           []string
		panicked, fine bool
	}{
		{name: "both", want: []string{"inner", "last", "outer"}, fine: true},
		{name: "inner fails", inner: errHandler, want: []string{"last", "outer"}, fine: true},
		{name: "outer fails", outer: errHandler},
	} {
		err := sqltx.Transact(t.Context(), s.db, opts, func(ctx context.Context) error {
			if err := s.enter(ctx, "outer"); err != nil {
				return err
			}
			if err := inside(ctx, "inner", test.inner); !errors.Is(err, test.inner) {
				return errors.Join(errors.New("the inner one"), err)
			}
			if err := inside(ctx, "last", nil); err != nil {
				return err
			}
			return test.outer
		})
		if (err == nil) != test.fine || !test.fine && !errors.Is(err, errHandler) {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := s.ids(t); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		s.exec(t, "DELETE FROM "+s.business)
	}
	// A failed statement affects only the savepoint.
	err := sqltx.Transact(t.Context(), s.db, opts, func(ctx context.Context) error {
		if err := s.enter(ctx, "a"); err != nil {
			return err
		}
		if err := inside(ctx, "a", nil); err == nil {
			t.Error("the same row was inserted twice")
		}
		return s.enter(ctx, "b")
	})
	if got := s.ids(t); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q, %v", got, err)
	}
	// A transaction of another database, of another library or of another isolation is no place for a savepoint.
	err = sqltx.Transact(t.Context(), s.db, opts, func(ctx context.Context) error {
		stricter, nothing := *opts, func(context.Context) error { return nil }
		stricter.Isolation = sql.LevelSerializable
		for name, err := range map[string]error{
			"another database": sqltx.Transact(ctx, new(sql.DB), opts, nothing),
			"isolation":        sqltx.Transact(ctx, s.db, &stricter, nothing),
			"another library":  sqltx.Transact(sqltx.ContextWithTransaction(ctx, nil), s.db, opts, nothing),
		} {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	must(t, err)
	// If the database has ended the transaction itself, it would commit each of the following statements separately.
	err = sqltx.Transact(t.Context(), s.db, opts, func(ctx context.Context) error {
		if err := s.enter(ctx, "c"); err != nil {
			return err
		}
		err := sqltx.Transact(ctx, s.db, opts, func(ctx context.Context) error {
			_, err := sqltx.ExecutorFromContext(ctx, s.db).ExecContext(ctx, "ROLLBACK")
			return errors.Join(errHandler, err)
		})
		if !errors.Is(err, errHandler) {
			return errors.Join(errors.New("the inner one"), err)
		}
		if err := s.enter(ctx, "d"); err == nil {
			t.Error("a transaction without its savepoint takes statements")
		}
		return nil
	})
	if got := s.ids(t); err == nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("after the database ended a transaction: %q, %v", got, err)
	}
}

// testSavepointOfAnEndedContext tests that a nested transaction whose own context ends is undone separately, too.
func testSavepointOfAnEndedContext(t *testing.T, s *suite) {
	opts := &sqltx.TxOptions{Dialect: s.Dialect}
	err := sqltx.Transact(t.Context(), s.db, opts, func(ctx context.Context) error {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		err := sqltx.Transact(inner, s.db, opts, func(ctx context.Context) error {
			if err := s.enter(ctx, "inner"); err != nil {
				return err
			}
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			return errors.Join(errors.New("the inner one"), err)
		}
		return s.enter(ctx, "outer")
	})
	if got := s.ids(t); err != nil || !slices.Equal(got, []string{"outer"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func (s *suite) ids(t testing.TB) (ids []string) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "SELECT id FROM "+s.business+" ORDER BY id")
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		must(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	must(t, rows.Err())
	return ids
}

// testDeadlock tests that one of two deadlocked transactions is retried if Retries is set, and that a handler that continues
// after a deadlock commits nothing.
func testDeadlock(t *testing.T, s *suite) {
	if s.Locked {
		t.Skip("one writer at a time: nobody waits for each other")
	}
	for _, retries := range []int{5, 0} {
		s.exec(t, "DELETE FROM "+s.business)
		s.exec(t, "INSERT INTO "+s.business+" (id, n) VALUES ('a', 0), ('b', 0)")
		opts := &sqltx.TxOptions{Dialect: s.Dialect, Retries: retries}
		var both, all sync.WaitGroup
		both.Add(2)
		var errs [2]error
		for i, ids := range [][]string{{"a", "b"}, {"b", "a"}} {
			all.Go(func() {
				met := sync.OnceFunc(func() { both.Done(); both.Wait() })
				errs[i] = sqltx.Transact(t.Context(), s.db, opts, func(ctx context.Context) error {
					for _, id := range ids {
						_, err := sqltx.ExecutorFromContext(ctx, s.db).ExecContext(ctx, s.Dialect.Bind("UPDATE "+s.business+" SET n = n + 1 WHERE id = ?"), id)
						met()
						if err == nil {
							continue
						}
						if retries > 0 {
							return err
						}
						_ = s.enter(ctx, "swallowed") // a handler that ignores the error
						return nil
					}
					return nil
				})
			})
		}
		all.Wait()
		sum := s.count(t, "SELECT SUM(n) FROM "+s.business)
		err := errors.Join(errs[:]...)
		if retries > 0 && (err != nil || sum != 4) {
			t.Errorf("with retries: %v, %d updates, want 4", err, sum)
		}
		if retries == 0 && (err == nil || sum != 2) {
			t.Errorf("a handler that goes on after a deadlock: %v, %d updates, want an error and 2", err, sum)
		}
	}
}
