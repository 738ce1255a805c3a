package pgx_test

import (
	"context"
	"fmt"
	"log"

	pgxdriver "github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/luatx/luatx/contrib/pgx"
)

// An adapter uses the executor from the context. Inside TxMiddleware, it is the transaction of the handler; otherwise it is the
// pool.
func ExampleExecutorFromContext() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	place := func(ctx context.Context, order string) error { // the adapter
		_, err := pgx.ExecutorFromContext(ctx, pool).Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", order)
		return err
	}

	ctx := pgx.ContextWithTx(context.Background(), printing{}) // TxMiddleware begins a transaction and does this
	fmt.Println(place(ctx, "order-17"))
	// Output:
	// INSERT INTO orders (id) VALUES ($1) [order-17]
	// <nil>
}

// printing is a transaction that prints what it executes.
type printing struct{ pgxdriver.Tx }

func (printing) Exec(_ context.Context, statement string, args ...any) (pgconn.CommandTag, error) {
	_, err := fmt.Println(statement, args)
	return pgconn.CommandTag{}, err
}
