package stream

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/group"
)

// heartbeat keeps other consumers from claiming the entries in flight, until ctx ends. It does not take back entries that
// another consumer has claimed all the same.
func (s *subscription) heartbeat(ctx context.Context) {
	if s.cfg.NoHeartbeat {
		return
	}
	// An entry gets a heartbeat after a third to half of MaxIdleTime, which leaves time for more attempts.
	tick := time.Tick(s.cfg.MaxIdleTime / 6)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
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
		if ctx.Err() == nil && !group.IsGone(err) { // the reader creates the group again
			s.outage.begins("heartbeat", err)
		}
		return
	}
	s.outage.over("heartbeat")
}
