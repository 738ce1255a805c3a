package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

var (
	errConcurrent = errors.New("another transaction was first")
	errOther      = errors.New("something else")
)

// retrying is a dialect that takes errConcurrent for the error of a concurrent transaction.
func retrying() Dialect {
	d := testDialect
	d.Retryable = func(err error) bool { return errors.Is(err, errConcurrent) }
	return d
}

func TestTransactionRunsAgainOnlyAfterAFailureBecauseOfAConcurrentOne(t *testing.T) {
	t.Parallel()
	never := retrying()
	never.Retryable = nil
	for name, c := range map[string]struct {
		dialect Dialect
		retries int
		errs    []error // of the runs; the last one is repeated
		refused string  // a statement that fails because of a concurrent transaction
		runs    int
		want    error
		commits int
	}{
		"by default":                {retrying(), 0, []error{errConcurrent}, "-", 1, errConcurrent, 0},
		"as often as it may":        {retrying(), 2, []error{errConcurrent}, "-", 3, errConcurrent, 0},
		"until it succeeds":         {retrying(), 2, []error{errConcurrent, nil}, "-", 2, nil, 1},
		"after the last retry":      {retrying(), 2, []error{errConcurrent, errConcurrent, nil}, "-", 3, nil, 1},
		"after another failure":     {retrying(), 2, []error{errOther}, "-", 1, errOther, 0},
		"until another failure":     {retrying(), 5, []error{errConcurrent, errOther}, "-", 2, errOther, 0},
		"of an unknown kind":        {never, 2, []error{errConcurrent}, "-", 1, errConcurrent, 0},
		"if the commit fails":       {retrying(), 2, []error{nil}, "COMMIT", 3, errConcurrent, 3},
		"if it cannot be begun":     {retrying(), 2, []error{nil}, "BEGIN", 0, errConcurrent, 0},
		"after its context's end":   {retrying(), 2, []error{context.Canceled, errConcurrent}, "-", 1, context.Canceled, 0},
		"a whole one with its part": {retrying(), 2, []error{errConcurrent}, "part", 3, errConcurrent, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &answers{answer: func(statement string, _ []any) ([][]any, error) {
				if statement == c.refused {
					return nil, errConcurrent
				}
				return nil, nil
			}}
			opts, runs := &TxOptions{Dialect: c.dialect, Retries: c.retries, Backoff: message.Backoff{Base: 1, Max: 1}}, 0
			conn := db.open(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			run := func(context.Context) error {
				err := c.errs[min(runs, len(c.errs)-1)]
				runs++
				if errors.Is(err, context.Canceled) {
					cancel()
					err = errors.Join(err, errConcurrent)
				}
				return err
			}
			err := Transact(ctx, conn, opts, func(ctx context.Context) error {
				if c.refused == "part" {
					return Transact(ctx, conn, opts, run)
				}
				return run(ctx)
			})
			if runs != c.runs || !errors.Is(err, c.want) {
				t.Errorf("%d runs, %v; want %d, %v", runs, err, c.runs, c.want)
			}
			if n := len(db.of("COMMIT")); n != c.commits {
				t.Errorf("%d commits, want %d", n, c.commits)
			}
		})
	}
}

func TestPausesBeforeRetriesGrowFromBaseToMax(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set       message.Backoff
		base, max time.Duration
	}{
		"by default": {message.Backoff{}, 10 * time.Millisecond, time.Second},
		"configured": {message.Backoff{Base: time.Second, Max: time.Hour}, time.Second, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := &answers{}
				opts := &TxOptions{Dialect: retrying(), Retries: 100, Backoff: c.set}
				if err := Transact(t.Context(), db.open(t), opts, func(context.Context) error { return errConcurrent }); !errors.Is(err, errConcurrent) {
					t.Error(err)
				}
				at, longest := db.times("BEGIN"), time.Duration(0)
				for i, ceiling := 1, c.base; i < len(at); i, ceiling = i+1, min(2*ceiling, c.max) {
					pause := at[i] - at[i-1]
					if longest = max(longest, pause); pause > ceiling {
						t.Errorf("pause %d is %v, want at most %v", i, pause, ceiling)
					}
				}
				if len(at) != 101 || longest < c.max/2 {
					t.Errorf("%d runs, the longest pause is %v, want 101 and about %v", len(at), longest, c.max)
				}
			})
		})
	}
}

func TestEndOfTheContextEndsThePauseBeforeARetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		db := &answers{}
		opts := &TxOptions{Dialect: retrying(), Retries: 1, Backoff: message.Backoff{Base: 1 << 60, Max: 1 << 60}}
		err := Transact(ctx, db.open(t), opts, func(context.Context) error { return errConcurrent })
		if !errors.Is(err, errConcurrent) || len(db.of("BEGIN")) != 1 {
			t.Errorf("%d runs, %v; want one, with its error", len(db.of("BEGIN")), err)
		}
	})
}

func TestTransactionHasTheIsolationAndTheKindOfItsOptions(t *testing.T) {
	t.Parallel()
	for _, before := range [][]string{nil, {"BEFORE"}} {
		for want, opts := range map[string]TxOptions{
			"[Default false]":      {},
			"[Serializable false]": {Isolation: sql.LevelSerializable},
			"[Default true]":       {ReadOnly: true},
			"[Snapshot true]":      {Isolation: sql.LevelSnapshot, ReadOnly: true},
		} {
			db := &answers{}
			opts.Dialect = testDialect
			opts.Dialect.Before = before
			if err := Transact(t.Context(), db.open(t), &opts, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
			if begun := db.of("BEGIN"); len(begun) != 1 || fmt.Sprint(begun[0].args) != want {
				t.Errorf("begun as %v, want %s", begun, want)
			}
		}
	}
}

// TestClaimsAndCleanupsHaveTheIsolationOfTheDialect includes claims without RETURNING, which need a transaction.
func TestClaimsAndCleanupsHaveTheIsolationOfTheDialect(t *testing.T) {
	t.Parallel()
	dialect := testDialect
	dialect.Isolation = sql.LevelReadCommitted
	for name, act := range map[string]func(*sql.DB) error{
		"claim": func(db *sql.DB) error {
			p := &pump{OutboxPublisher: NewOutboxPublisher(OutboxPublisherConfig{DB: db, Dialect: dialect})}
			_, err := p.leaseRows(t.Context(), "mine", 7, "TRUE")
			return err
		},
		"cleanup": func(db *sql.DB) error {
			_, err := Cleanup(t.Context(), CleanupConfig{DB: db, Table: "inbox", Dialect: dialect})
			return err
		},
	} {
		db := &answers{}
		err := act(db.open(t))
		if begun := db.of("BEGIN"); err != nil || len(begun) != 1 || begun[0].args[0] != sql.LevelReadCommitted {
			t.Errorf("%s: begun as %v, %v", name, begun, err)
		}
	}
}

func TestSavepointFitsIntoATransactionOfTheSameOrAnUnstatedIsolation(t *testing.T) {
	t.Parallel()
	const serializable, def = sql.LevelSerializable, sql.LevelDefault
	for name, c := range map[string]struct {
		outer, inner sql.IsolationLevel
		foreign      bool // the outer one was begun elsewhere
		fits         bool
	}{
		"neither states one":   {def, def, false, true},
		"the inner states one": {def, serializable, false, false},
		"the outer states one": {serializable, def, false, true},
		"the same":             {serializable, serializable, false, true},
		"another":              {sql.LevelSnapshot, serializable, false, false},
		"begun elsewhere":      {def, serializable, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &answers{}
			db, ran := a.open(t), false
			inside := func(ctx context.Context) error {
				return Transact(ctx, db, &TxOptions{Dialect: testDialect, Isolation: c.inner}, func(context.Context) error { ran = true; return nil })
			}
			var err error
			if c.foreign {
				tx, beginErr := db.BeginTx(t.Context(), nil)
				if beginErr != nil {
					t.Fatal(beginErr)
				}
				err = errors.Join(inside(ContextWithTx(t.Context(), tx)), tx.Commit())
			} else {
				err = Transact(t.Context(), db, &TxOptions{Dialect: testDialect, Isolation: c.outer}, inside)
			}
			if ran != c.fits || (err == nil) != c.fits {
				t.Errorf("ran %t, %v", ran, err)
			}
			if n, points := len(a.of("BEGIN")), len(a.of("RELEASE SAVEPOINT luatx_1")); n != 1 || (points == 1) != c.fits {
				t.Errorf("%d transactions, %d savepoints", n, points)
			}
		})
	}
}

func TestTransactionWhosePartCannotBeUndoneIsNotCommitted(t *testing.T) {
	t.Parallel()
	db := &answers{answer: func(statement string, _ []any) ([][]any, error) {
		if strings.HasPrefix(statement, "ROLLBACK TO") {
			return nil, errOther
		}
		return nil, nil
	}}
	conn, opts := db.open(t), &TxOptions{Dialect: testDialect}
	err := Transact(t.Context(), conn, opts, func(ctx context.Context) error {
		if err := Transact(ctx, conn, opts, func(context.Context) error { return errConcurrent }); !errors.Is(err, errConcurrent) || !errors.Is(err, errOther) {
			t.Errorf("error of the part is %v", err)
		}
		return nil
	})
	if !errors.Is(err, errOther) || !strings.Contains(err.Error(), "commit transaction") || len(db.of("COMMIT")) > 0 {
		t.Errorf("%v, %d commits", err, len(db.of("COMMIT")))
	}
}
