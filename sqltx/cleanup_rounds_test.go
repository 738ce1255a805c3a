package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/rig"
)

const deleting = "DELETE"

var testDialect = Dialect{Name: "test", Quote: `"`, NowMillis: "NOW_MS", OrderingKeys: "KEYS", Ago: "AGO(?)", DeleteSome: "DELETE FROM %[1]s WHERE %[2]s LIMIT ?"}

func TestCleanupRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*CleanupConfig){
		"":                      func(*CleanupConfig) {},
		"CleanupConfig.DB":      func(c *CleanupConfig) { c.DB = nil },
		"CleanupConfig.Column":  func(c *CleanupConfig) { c.Column = "created_at; DROP" },
		"has a ?":               func(c *CleanupConfig) { c.Condition = "id < ?" },
		"CleanupConfig.Table":   func(c *CleanupConfig) { c.Table = `a"b` },
		"CleanupConfig: ":       func(c *CleanupConfig) { c.Dialect = Dialect{} },
		"ChunkSize is negative": func(c *CleanupConfig) { c.ChunkSize = -1 },
		"Retention, Interval o": func(c *CleanupConfig) { c.Retention = -1 },
	} {
		cfg := CleanupConfig{DB: sql.OpenDB(&answers{}), Table: "outbox", Dialect: testDialect}
		change(&cfg)
		for _, start := range []func() error{
			func() error { _, err := Cleanup(t.Context(), cfg); return err },
			func() error {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done, err := StartCleanup(ctx, cfg)
				if err == nil {
					cancel()
					<-done
				}
				return err
			},
		} {
			if err := start(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("error is %v, want one about %q", err, want)
			}
		}
	}
}

// inBubbleCleaned runs a test in a bubble with a database that deletes the given chunks, each in 2 seconds.
func inBubbleCleaned(t *testing.T, chunks []int, fail string, test func(t *testing.T, db *answers, cfg CleanupConfig, logs *rig.Lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := &answers{}
		db.answer = func(statement string, _ []any) ([][]any, error) {
			if strings.Contains(statement, fail) {
				return nil, errDown
			}
			if !strings.Contains(statement, deleting) || len(chunks) == 0 {
				return nil, nil
			}
			time.Sleep(2 * time.Second)
			n := chunks[0]
			chunks = chunks[1:]
			return make([][]any, n), nil
		}
		logs := &rig.Lines{}
		test(t, db, CleanupConfig{DB: db.open(t), Table: "inbox", Dialect: testDialect, ChunkSize: 3, Logger: logs.Logger()}, logs)
	})
}

func TestCleanupPausesAfterEachChunkForAsLongAsItTook(t *testing.T) {
	t.Parallel()
	inBubbleCleaned(t, []int{3, 3, 2}, "-", func(t *testing.T, db *answers, cfg CleanupConfig, _ *rig.Lines) {
		if n, err := Cleanup(t.Context(), cfg); n != 8 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
		wantTimes(t, "deleted", db.times(deleting), 0, 4*time.Second, 8*time.Second)
		if args := db.of(deleting)[0].args; fmt.Sprint(args) != "[604800000 3]" {
			t.Errorf("deleted with %v", args)
		}
	})
	inBubbleCleaned(t, []int{3, 3, 2}, "-", func(t *testing.T, db *answers, cfg CleanupConfig, _ *rig.Lines) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if n, err := Cleanup(ctx, cfg); n != 3 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deleted %d, %v", n, err)
		}
	})
}

func TestCleanupThatFailsReturnsTheNumberOfRowsThatItDeletedBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &answers{}
		db.answer = func(statement string, _ []any) ([][]any, error) {
			switch {
			case !strings.Contains(statement, deleting):
				return nil, nil
			case len(db.of(deleting)) == 3:
				return nil, errDown
			}
			return make([][]any, 3), nil
		}
		if n, err := Cleanup(t.Context(), CleanupConfig{DB: db.open(t), Table: "inbox", Dialect: testDialect, ChunkSize: 3}); n != 6 || !errors.Is(err, errDown) {
			t.Errorf("deleted %d, %v", n, err)
		}
	})
}

func TestCleanupDoesNotCountRowsOfATransactionThatWasNotCommitted(t *testing.T) {
	t.Parallel()
	db := &answers{answer: func(statement string, _ []any) ([][]any, error) {
		switch {
		case strings.Contains(statement, deleting):
			return make([][]any, 3), nil
		case statement == "COMMIT":
			return nil, errDown
		}
		return nil, nil
	}}
	if n, err := Cleanup(t.Context(), CleanupConfig{DB: db.open(t), Table: "inbox", Dialect: testDialect}); n != 0 || !errors.Is(err, errDown) {
		t.Errorf("deleted %d, %v", n, err)
	}
}

func TestCleanupDeletesByTheAgeAndTheConditionFromTheTableOfItsConfig(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		of     func(*sql.DB) CleanupConfig
		change func(*CleanupConfig)
	}{
		`"processed_messages" WHERE "created_at" < AGO(?) LIMIT`: {of: func(db *sql.DB) CleanupConfig { return InboxCleanup(InboxConfig{DB: db, Dialect: testDialect}) }},
		`"outbox" WHERE "created_at" < AGO(?) LIMIT`:             {of: func(db *sql.DB) CleanupConfig { return OutboxCleanup(OutboxConfig{DB: db, Dialect: testDialect}) }},
		`"seen" WHERE "created_at" < AGO(?) LIMIT`: {of: func(db *sql.DB) CleanupConfig {
			return InboxCleanup(InboxConfig{DB: db, Dialect: testDialect, Table: "seen"})
		}},
		`"events" WHERE "created_at" < AGO(?) LIMIT`: {of: func(db *sql.DB) CleanupConfig {
			return OutboxCleanup(OutboxConfig{DB: db, Dialect: testDialect, Table: "events"})
		}},
		`"audit" WHERE "closed_at" < AGO(?) LIMIT`:              {change: func(c *CleanupConfig) { c.Column = "closed_at" }},
		`"audit" WHERE "created_at" < AGO(?) AND (a = 1)`:       {change: func(c *CleanupConfig) { c.Condition = "a = 1" }},
		`"audit" WHERE "created_at" < AGO(?) AND (b LIKE '%s')`: {change: func(c *CleanupConfig) { c.Condition = " and b LIKE '%s' " }},
		`"audit" WHERE "created_at" < AGO(?) AND (c = 1)`:       {change: func(c *CleanupConfig) { c.Condition = "AND\n\tc = 1" }},
		`"audit" WHERE "created_at" < AGO(?) AND ((d = 1))`:     {change: func(c *CleanupConfig) { c.Condition = "And(d = 1)" }},
		`"audit" WHERE "created_at" < AGO(?) AND (android = 1)`: {change: func(c *CleanupConfig) { c.Condition = "android = 1" }},
	} {
		db := &answers{}
		conn := db.open(t)
		cfg := CleanupConfig{DB: conn, Table: "audit", Dialect: testDialect}
		if c.of != nil {
			cfg = c.of(conn)
		} else {
			c.change(&cfg)
		}
		_, err := Cleanup(t.Context(), cfg)
		if got := db.of(deleting); err != nil || len(got) != 1 || !strings.HasPrefix(got[0].statement, "DELETE FROM "+want) {
			t.Errorf("deleted %v, %v; want %s", got, err, want)
		}
	}
}

func TestCleanupRunsOneRoundPerInterval(t *testing.T) {
	t.Parallel()
	for _, fail := range []string{"-", deleting, "SELECT"} {
		inBubbleCleaned(t, nil, fail, func(t *testing.T, db *answers, cfg CleanupConfig, logs *rig.Lines) {
			ctx, cancel := context.WithCancel(t.Context())
			done, err := StartCleanup(ctx, cfg)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(150 * time.Second)
			cancel()
			<-done
			wantTimes(t, "rounds", db.times("SELECT"), 0, time.Minute, 2*time.Minute)
			lines := 0
			if fail != "-" {
				lines = 3
			}
			if n := logs.Count("cleanup: round failed"); n != lines {
				t.Errorf("%d lines, want %d:\n%s", n, lines, logs)
			}
		})
	}
}

func TestListParkedContinuesBehindLastRowAndReturnsErrors(t *testing.T) {
	t.Parallel()
	for n, queries := range map[int]int{0: 1, 99: 1, 100: 2, 101: 2} {
		all := rows(1, n, 10)
		for i := range all {
			all[i] = append(all[i], "why")
		}
		db := &answers{answer: func(_ string, args []any) ([][]any, error) {
			after := slices.IndexFunc(all, func(row []any) bool { return row[0].(int64) > args[0].(int64) })
			if after < 0 {
				return nil, nil
			}
			return all[after:min(after+100, n)], nil
		}}
		p := NewOutboxPublisher(OutboxPublisherConfig{DB: db.open(t), Dialect: testDialect})
		listed := 0
		for e, err := range p.Parked(t.Context()) {
			if listed++; err != nil || e.ID != int64(listed) || e.Type != "t" || e.Attempts != 10 || e.Error != "why" || e.Message.ID() != fmt.Sprint(listed) {
				t.Errorf("listed %+v, %v", e, err)
			}
		}
		if listed != n || len(db.of("parked = TRUE")) != queries {
			t.Errorf("listed %d of %d by %d queries, want %d", listed, n, len(db.of("parked = TRUE")), queries)
		}
	}
	for name, answer := range map[string]func(string, []any) ([][]any, error){
		"refused": func(string, []any) ([][]any, error) { return nil, errDown },
		"broken":  func(string, []any) ([][]any, error) { return [][]any{append(rows(1, 1, 1)[0], "why"), nil}, nil },
		"unread":  func(string, []any) ([][]any, error) { return [][]any{append(rows(1, 1, 1)[0], nil)}, nil },
	} {
		db := &answers{answer: answer}
		p := NewOutboxPublisher(OutboxPublisherConfig{DB: db.open(t), Dialect: testDialect})
		var errs []error
		for e, err := range p.Parked(t.Context()) {
			if errs = append(errs, err); e.ID != 0 {
				t.Errorf("%s: listed %+v", name, e)
			}
		}
		if len(errs) != 1 || errs[0] == nil || name == "broken" && !errors.Is(errs[0], io.ErrUnexpectedEOF) {
			t.Errorf("%s: errors are %v", name, errs)
		}
		if n := p.cfg.DB.Stats().InUse; n != 0 {
			t.Errorf("%s: %d connections are in use", name, n)
		}
	}
}

func TestRearmAndDiscardTriggerAPollAtOnce(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*OutboxPublisher, context.Context, ...int64) (int, error){"rearm": (*OutboxPublisher).Rearm, "discard": (*OutboxPublisher).Discard} {
		synctest.Test(t, func(t *testing.T) {
			db := &answers{answer: func(statement string, args []any) ([][]any, error) {
				if strings.Contains(statement, "parked = TRUE") {
					return make([][]any, len(args)), nil
				}
				return nil, nil
			}}
			p := NewOutboxPublisher(OutboxPublisherConfig{DB: db.open(t), Dialect: testDialect, PollInterval: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			if _, err := p.Source(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if n, err := act(p, t.Context(), 5, 6); n != 2 || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			synctest.Wait()
			if at := db.times("SELECT o.id"); len(at) != 2 || at[1] != time.Second {
				t.Errorf("%s: looked at %v", name, at)
			}
			if n, err := act(p, t.Context()); n != 0 || err != nil || len(db.of("parked = TRUE")) != 1 {
				t.Errorf("%s of nothing: %d, %v", name, n, err)
			}
			cancel()
			p.Wait()
			db.answer = func(string, []any) ([][]any, error) { return nil, errDown }
			if n, err := act(p, t.Context(), 5, 6); n != 0 || !errors.Is(err, errDown) {
				t.Errorf("%s by a database that is down: %d, %v", name, n, err)
			}
		})
	}
}
