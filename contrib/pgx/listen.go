package pgx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Listen returns what sqltx.OutboxPublisherConfig.Listen takes: it waits for notifications on a connection of the pool,
// which is closed, and not given back, when it returns. It wakes once at its start, for what was committed before.
func Listen(pool *pgxpool.Pool) func(ctx context.Context, channel string, wake func()) error {
	return func(ctx context.Context, channel string, wake func()) error {
		pooled, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		conn := pooled.Hijack() // it listens for as long as it lives
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
