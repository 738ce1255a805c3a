package stream

import (
	"context"
	"slices"
	"time"
)

// redeliver delivers nacked entries again when they are due, if they still belong to this consumer.
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

// waitDue waits for a change, or for at most wait if that is not negative.
func waitDue(ctx context.Context, wait time.Duration, changed <-chan struct{}) {
	var due <-chan time.Time
	if wait >= 0 {
		due = time.After(wait)
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-due:
	}
}

func (s *subscription) redeliverDue(ctx context.Context, due []*entry, failures int) (ok bool) {
	due = slices.DeleteFunc(due, func(e *entry) bool {
		if e.deadReason != "" {
			s.deadLetter(e, e.deadReason)
		}
		return e.deadReason != ""
	})
	if len(due) == 0 {
		return true
	}
	ids := make([]string, len(due))
	for i, e := range due {
		ids[i] = e.id
	}
	found, err := s.member.Fetch(ctx, ids...)
	if err != nil {
		s.failed(ctx, "redeliver", err)
		for _, e := range due {
			s.ledger.postpone(e, max(readBackoff.Delay(failures+1), minBlock))
		}
		return false
	}
	s.outage.over("redeliver")
	for i, f := range found {
		if f.Deliveries > 0 {
			s.counts.redelivered.Add(1)
			s.hand(due[i], f)
			continue
		}
		s.outage.log.Debug("stream: nacked entry claimed by another consumer", "entry", ids[i])
		s.ledger.forget(due[i])
	}
	return true
}
