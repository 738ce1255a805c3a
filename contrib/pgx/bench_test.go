package pgx_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	pgxdriver "github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/luatx/luatx/contrib/pgx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/sqltx/sqltest"
)

// BenchmarkStack compares a message in the stack with the same four statements written by hand: the inbox mark, a business row
// and an event in one transaction. docs/performance.md has the results.
func BenchmarkStack(b *testing.B) {
	pool, err := pgxpool.New(b.Context(), sqltest.Postgres(b).DSN)
	must(b, err)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	inbox := sqltx.InboxConfig{DB: db, Table: sqltest.Table("inbox"), Subscriber: "s"}
	outbox := sqltx.OutboxConfig{DB: db, Table: sqltest.Table("outbox"), Topic: "orders"}
	business := sqltest.Table("orders")
	for _, err := range []error{inbox.Init(b.Context()), outbox.Init(b.Context()), create(b.Context(), pool, business)} {
		must(b, err)
	}
	insert := "INSERT INTO " + business + " (id) VALUES ($1)"
	router := func(tx message.Middleware, enter func(ctx context.Context, id string) error) func(context.Context, string) error {
		r := message.NewRouter(message.PipeConfig{})
		handler := message.NewCommandHandler(func(ctx context.Context, id string) ([]placed, error) {
			return []placed{{id}}, enter(ctx, id)
		}, message.CommandHandlerConfig{CommandType: "place"})
		must(b, r.Use(tx, sqltx.InboxMiddleware(inbox), sqltx.OutboxMiddleware(outbox)))
		must(b, r.AddHandler("place", nil, handler))
		return func(ctx context.Context, id string) error {
			_, err := r.Process(ctx, message.New(id, message.Attributes{message.AttrID: id, message.AttrSource: "/b", message.AttrType: "place"}, nil))
			return err
		}
	}
	var n atomic.Int64 // new ids in every run, so that there are no duplicates
	for _, way := range []struct {
		name   string
		handle func(ctx context.Context, id string) error
	}{
		{"by-hand", byHand(pool, inbox.Table, outbox.Table, insert)},
		{"pgx", router(pgx.TxMiddleware(pool, nil), func(ctx context.Context, id string) error {
			_, err := pgx.ExecutorFromContext(ctx, pool).Exec(ctx, insert, id)
			return err
		})},
		{"sql", router(sqltx.TxMiddleware(db, nil), func(ctx context.Context, id string) error {
			_, err := sqltx.ExecutorFromContext(ctx, db).ExecContext(ctx, insert, id)
			return err
		})},
	} {
		for _, workers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d", way.name, workers), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(max(1, workers/2)) // multiplied by GOMAXPROCS, if that is 2
				handle := func() {
					if err := way.handle(b.Context(), fmt.Sprint("message-", n.Add(1))); err != nil {
						b.Error(err)
					}
				}
				if workers == 1 {
					for b.Loop() {
						handle()
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						handle()
					}
				})
			})
		}
	}
}

type placed struct{ ID string }

func create(ctx context.Context, pool *pgxpool.Pool, table string) error {
	_, err := pool.Exec(ctx, "CREATE TABLE "+table+" (id TEXT PRIMARY KEY)")
	return err
}

// byHand is the code of a team without a library.
func byHand(pool *pgxpool.Pool, inbox, outbox, insert string) func(ctx context.Context, id string) error {
	mark := "INSERT INTO " + inbox + " (subscriber, source, message_id) VALUES ('s', '/b', $1) ON CONFLICT DO NOTHING"
	event := "INSERT INTO " + outbox + " (topic, event_type, data, attributes) VALUES ('orders', 'placed', $1, $2)"
	return func(ctx context.Context, id string) error {
		return pgxdriver.BeginFunc(ctx, pool, func(tx pgxdriver.Tx) error {
			tag, err := tx.Exec(ctx, mark, id)
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			if _, err := tx.Exec(ctx, insert, id); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, event, `{"ID":"`+id+`"}`, `{"specversion":"1.0","id":"`+id+`","source":"/place","type":"placed"}`)
			return err
		})
	}
}
