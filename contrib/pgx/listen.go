package pgx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Listen returns a function for sqltx.OutboxPublisherConfig.Listen. It waits for notifications on a connection of the pool, which
// it closes when it returns. It calls wake once at its start, for rows that were committed before.
func Listen(pool *pgxpool.Pool) func(ctx context.Context, channel string, wake func()) error {
	return func(ctx context.Context, channel string, wake func()) error {
		pooled, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		conn := pooled.Hijack() // the connection keeps listening, so it must not return to the pool
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
		for {
			wake()
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	}
}
