package stream

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/group"
)

// heartbeat keeps the entries in flight from being claimed, until ctx ends. Entries that another consumer has claimed
// all the same stay with that consumer.
func (s *subscription) heartbeat(ctx context.Context) {
	if s.cfg.NoHeartbeat {
		return
	}
	// An entry is beaten between a third and a half of the time after which it may be claimed, and again where that fails.
	tick := time.NewTicker(s.cfg.MaxIdleTime / 6)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.beat(ctx)
		}
	}
}

func (s *subscription) beat(ctx context.Context) {
	ids := s.ledger.toBeat(s.cfg.MaxIdleTime / 3)
	if len(ids) == 0 {
		return
	}
	if err := s.member.Hold(ctx, ids, 0, false); err != nil {
		s.ledger.unbeaten(ids)
		if ctx.Err() == nil && !group.IsGone(err) { // the reader makes it again
			s.outage.begins("heartbeat", err)
		}
		return
	}
	s.outage.over("heartbeat")
}
