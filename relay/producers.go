package relay

import (
	"context"
	"sync"

	"github.com/luatx/luatx/internal/producer"
	"github.com/luatx/luatx/message"
)

// withProducers tells Publishers the producer of each event: the namespace and shard. Together with its id they identify
// the event, so that a stream can recognize an event that is published again. An event that operators may replay must reach
// its destination again, and the outbox may give a forgotten id to another event, so neither has a producer.
func (r *Relay) withProducers(ctx context.Context, g *group) context.Context {
	if r.cfg.KeepSentBodies || r.cfg.SentRetention < 0 {
		return ctx
	}
	shards := sync.OnceValue(func() map[*message.RawMessage]int {
		slots := make(map[*message.RawMessage]int, len(g.messages))
		for i, msg := range g.messages {
			slots[msg] = g.events[i].slot
		}
		return slots
	})
	return producer.With(ctx, producer.Naming{
		Unique: r.cfg.SentRetention,
		Of: func(event *message.RawMessage) string {
			slot, ok := shards()[event]
			if !ok {
				return ""
			}
			return r.scripts.Shard(slot).Key("")
		},
	})
}
