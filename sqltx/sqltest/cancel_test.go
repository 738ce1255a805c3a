package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

// TestTransactionWhoseContextEndsWritesNothing ends the context while a statement runs, so that database/sql waits for the end of
// the statement before it rolls back.
func TestTransactionWhoseContextEndsWritesNothing(t *testing.T) {
	t.Parallel()
	db, table := sqltest.MariaDB(t).Open(t), sqltest.Table("ended")
	execute(t, db, "CREATE TABLE "+table+" (n INTEGER)")
	for n := range 5 {
		gate := fmt.Sprint(table, n)
		holder, err := db.Conn(t.Context())
		must(t, err)
		_, err = holder.ExecContext(t.Context(), "DO GET_LOCK(?, 60)", gate)
		must(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		began, ended := make(chan *sql.Tx, 1), make(chan error, 1)
		go func() {
			ended <- sqltx.Transact(ctx, db, nil, func(ctx context.Context) error {
				tx, _ := sqltx.TxFromContext(ctx)
				began <- tx
				_, err := tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES (1)")
				_, waited := tx.ExecContext(context.WithoutCancel(ctx), "DO GET_LOCK('"+gate+"', 60)")
				return errors.Join(err, waited, ctx.Err())
			})
		}()
		waitFor(t, "the statement waits", time.Minute, func() bool {
			return number(t, db, "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock' AND info LIKE '%"+gate+"%'") == 1
		})
		tx := <-began
		cancel()
		for !errors.Is(tx.Commit(), sql.ErrTxDone) {
			runtime.Gosched()
		}
		_, err = holder.ExecContext(t.Context(), "DO RELEASE_LOCK(?)", gate)
		must(t, errors.Join(err, holder.Close()))
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if n := number(t, db, "SELECT COUNT(*) FROM "+table); n != 0 {
		t.Errorf("%d rows of transactions that were not committed", n)
	}
	execute(t, db, "DROP TABLE "+table)
}
