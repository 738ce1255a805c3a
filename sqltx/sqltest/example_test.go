package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

// Transactions of several goroutines wait for each other, so that none fails because the database is locked.
func ExampleSQLiteDSN() {
	dir, err := os.MkdirTemp("", "sqltest-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", sqltest.SQLiteDSN(filepath.Join(dir, "shop.db")))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ctx := context.Background()
	if _, err := db.ExecContext(ctx, "CREATE TABLE sold (n INTEGER); INSERT INTO sold VALUES (0)"); err != nil {
		log.Fatal(err)
	}

	var buyers sync.WaitGroup
	for range 8 {
		buyers.Go(func() {
			err := sqltx.Transact(ctx, db, nil, func(ctx context.Context) error {
				_, err := sqltx.ExecutorFromContext(ctx, db).ExecContext(ctx, "UPDATE sold SET n = n + 1")
				return err
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	buyers.Wait()
	var sold int
	err = db.QueryRowContext(ctx, "SELECT n FROM sold").Scan(&sold)
	fmt.Println(sold, err)
	// Output: 8 <nil>
}
