package stream

import (
	"context"
	"time"
)

// redeliver gives out nacked entries again when they are due, and those alone that are still this consumer's.
func (s *subscription) redeliver(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		due, wait, changed := s.ledger.takeDue()
		if len(due) == 0 {
			waitDue(ctx, wait, changed)
			continue
		}
		if s.redeliverDue(ctx, due, failures) {
			failures = 0
		} else {
			failures++
		}
	}
}

// waitDue waits for a change, and where wait is not negative no longer than that.
func waitDue(ctx context.Context, wait time.Duration, changed <-chan struct{}) {
	var due <-chan time.Time
	if wait >= 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-due:
	}
}

func (s *subscription) redeliverDue(ctx context.Context, due []*entry, failures int) (ok bool) {
	ids := make([]string, len(due))
	for i, e := range due {
		ids[i] = e.id
	}
	ok = true
	for i, f := range s.fetch(ctx, ids) {
		e := due[i]
		switch {
		case f.err != nil:
			if ok {
				s.failed(ctx, "redeliver", f.err)
			}
			ok = false
			s.ledger.postpone(e, max(readBackoff.Delay(failures+1), minBlock))
		case f.ours:
			s.counts.redelivered.Add(1)
			s.hand(e, f.values)
		default:
			s.outage.log.Debug("stream: nacked entry was claimed by another consumer", "entry", e.id)
			s.ledger.forget(e)
		}
	}
	if ok {
		s.outage.over("redeliver")
	}
	return ok
}
