package stream

import (
	"context"

	"github.com/luatx/luatx/internal/group"
)

// dismissAfter is how many times as long as an entry a consumer may be idle.
const dismissAfter = 10

// dismiss removes the consumers of processes that are gone, once nothing is pending for them.
func (s *subscription) dismiss(ctx context.Context) {
	idle := dismissAfter * max(s.cfg.MaxIdleTime, s.cfg.ClaimInterval, s.cfg.BlockTimeout)
	gone, err := s.member.Dismiss(ctx, idle)
	if err != nil {
		if ctx.Err() == nil && !group.IsGone(err) {
			s.outage.begins("dismiss", err)
		}
		return
	}
	s.outage.over("dismiss")
	s.counts.dismissed.Add(gone)
}
