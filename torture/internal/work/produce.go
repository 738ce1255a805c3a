package work

import (
	"context"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
)

// twiceShare is the share of orders that are written twice, as by a producer that lost the reply to its first write.
const twiceShare = 0.05

// OrderType, TickType and SentType are the types of inputs.
const (
	OrderType = "order"
	TickType  = "tick"
	SentType  = "sent"
	StepType  = "step"
)

// stumbleOf is the number of steps of which one fails for good.
const stumbleOf = 50

// produce writes a random input. An order is applied once because of its id, and a step because of its position. A tick or signal
// is applied once because the commit of its effect acknowledges it.
func (t *teller) produce(ctx context.Context) {
	b := t.somewhere()
	switch t.rng.IntN(8) {
	case 0, 1:
		_ = t.client.XAdd(ctx, &redis.XAddArgs{Stream: b.Ticks, Values: []any{
			"ce_specversion", "1.0", "ce_type", TickType, "ce_subject", b.Name, "data", "{}",
		}}).Err() // the check reads the stream to find what was written
		return
	case 2:
		_ = t.client.XAdd(ctx, &redis.XAddArgs{Stream: b.Signals, Values: []any{fieldSubject, b.Name, "data", "!"}}).Err()
		return
	case 3, 4:
		stumbles := t.rng.IntN(stumbleOf) == 0
		_ = t.client.XAdd(ctx, &redis.XAddArgs{Stream: b.Steps, Values: []any{
			"ce_specversion", "1.0", "ce_type", StepType, "ce_subject", b.Steppers[t.rng.IntN(len(b.Steppers))], ground.FieldStumbles, stumbles, "data", "{}",
		}}).Err()
		return
	}
	line := history.Line{Kind: history.Put, ID: t.newID("o"), Branch: b.N, Outcome: history.Unknown, Start: t.now(), End: math.MaxInt64}
	t.note(line) // remains if the process is killed before the write returns
	line.Outcome = history.Committed
	product, units := fmt.Sprintf("p%d", t.rng.IntN(ground.Products)), 1+t.rng.IntN(9)
	times := 1
	if t.rng.Float64() < twiceShare {
		times = 2
	}
	for range times {
		err := t.client.XAdd(ctx, &redis.XAddArgs{Stream: b.Orders, Values: []any{
			"ce_specversion", "1.0", "ce_id", line.ID, "ce_source", "/torture", "ce_type", OrderType, "ce_subject", b.Name,
			"data", fmt.Sprintf(`{"product":%q,"units":%d}`, product, units),
		}}).Err()
		if err != nil {
			line.Outcome, line.Err = history.Unknown, err.Error()
		}
	}
	line.End = t.now()
	t.note(line)
}
