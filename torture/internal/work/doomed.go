package work

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
)

// doomed returns a transaction whose last but one command fails after writes of every type. None of the writes may stay.
func (t *teller) doomed() *call {
	b := t.somewhere()
	line := history.Line{ID: t.newID("d"), Op: history.Doomed, Branch: b.N, From: ground.Account(t.rng.IntN(ground.Accounts)), Amount: 1 + t.rng.Int64N(100)}
	number, list, set, zset, stream, fresh := b.Doomed()
	writes := []func(ctx context.Context, p redis.Pipeliner){
		func(ctx context.Context, p redis.Pipeliner) { p.HIncrBy(ctx, b.Balances, line.From, line.Amount) },
		func(ctx context.Context, p redis.Pipeliner) {
			p.HSet(ctx, b.Effects, line.ID, ground.Effect{Kind: history.Doomed, From: "-", To: "-", Event: "-", Lane: ground.NoLane}.String())
		},
		func(ctx context.Context, p redis.Pipeliner) { p.RPush(ctx, list, line.ID) },
		func(ctx context.Context, p redis.Pipeliner) { p.LPop(ctx, list) },
		func(ctx context.Context, p redis.Pipeliner) { p.SAdd(ctx, set, line.ID) },
		func(ctx context.Context, p redis.Pipeliner) { p.SRem(ctx, set, "one", "two") },
		func(ctx context.Context, p redis.Pipeliner) { p.ZIncrBy(ctx, zset, 1, "one") },
		func(ctx context.Context, p redis.Pipeliner) { p.Set(ctx, fresh, line.ID, time.Hour) },
		func(ctx context.Context, p redis.Pipeliner) { p.Del(ctx, zset, list) },
		func(ctx context.Context, p redis.Pipeliner) { p.Expire(ctx, set, time.Hour) },
		func(ctx context.Context, p redis.Pipeliner) {
			p.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"id", line.ID}})
		},
	}
	t.rng.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
	writes = writes[:1+t.rng.IntN(len(writes))]
	return &call{line: line, branch: b, record: func(ctx context.Context, tx *luatx.Tx) error {
		p := tx.Pipeline()
		for _, write := range writes {
			write(ctx, p)
		}
		event, err := eventOf(b, line.ID, ground.Effect{Event: ground.EventID(tx.EventID()), Lane: line.From}, "doomed", time.Time{})
		if err != nil {
			return err
		}
		if err := tx.Emit(event); err != nil {
			return err
		}
		p.Incr(ctx, number) // the text is not a number
		p.HIncrBy(ctx, b.Sums, "count", 1)
		return nil
	}, answer: func(history.Outcome) string { return "" }}
}
