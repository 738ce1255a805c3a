package stream

import "context"

// dismissAfter is how many times as long as an entry a consumer may be idle.
const dismissAfter = 10

// dismiss removes the consumers of processes that are gone, once nothing is pending for them.
func (s *subscription) dismiss(ctx context.Context) {
	idle := dismissAfter * max(s.cfg.MaxIdleTime, s.cfg.ClaimInterval, s.cfg.BlockTimeout)
	gone, err := dismissScript.Run(ctx, s.client, []string{s.cfg.Stream}, s.cfg.Group, s.consumer, idle.Milliseconds()).Int64()
	if err != nil {
		if ctx.Err() == nil && !isNoGroup(err) {
			s.outage.begins("dismiss", err)
		}
		return
	}
	s.outage.over("dismiss")
	s.counts.dismissed.Add(gone)
}
