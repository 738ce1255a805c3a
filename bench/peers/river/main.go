// Command river is the service of the README with River, for docs/comparison.md. Its state is a table:
//
//	CREATE TABLE bought (customer text, product text, n int NOT NULL, PRIMARY KEY (customer, product))
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// PlaceOrder is a job.
type PlaceOrder struct{ Customer, Product string }

// Kind names the job.
func (PlaceOrder) Kind() string { return "place.order" }

// OrderPlaced is a job for consumers of the event.
type OrderPlaced struct{ Customer, Product string }

// Kind names the job.
func (OrderPlaced) Kind() string { return "order.placed" }

type placeOrder struct {
	river.WorkerDefaults[PlaceOrder]
	pool *pgxpool.Pool
}

// Work counts the order, inserts the event, and completes the job in one transaction.
func (w *placeOrder) Work(ctx context.Context, job *river.Job[PlaceOrder]) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO bought VALUES ($1, $2, 1)
			ON CONFLICT (customer, product) DO UPDATE SET n = bought.n + 1`, job.Args.Customer, job.Args.Product); err != nil {
			return err
		}
		events := river.ClientFromContext[pgx.Tx](ctx)
		if _, err := events.InsertTx(ctx, tx, OrderPlaced(job.Args), &river.InsertOpts{Queue: "order-events"}); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, &placeOrder{pool: pool})
	orders, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{"orders": {MaxWorkers: 10}}, Workers: workers,
		SkipUnknownJobCheck: true, // other programs process the events
	})
	if err != nil {
		return err
	}
	if err := orders.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return orders.Stop(context.WithoutCancel(ctx))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Print(err)
	}
}
