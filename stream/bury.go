package stream

import (
	"context"

	"github.com/luatx/luatx/internal/group"
)

// usedUp reports whether an entry with so many deliveries must not be delivered again.
func (s *subscription) usedUp(deliveries int64) bool {
	return s.cfg.MaxDeliveries > 0 && deliveries >= int64(s.cfg.MaxDeliveries)
}

// bury moves an entry in flight to the dead-letter stream and releases its place. If that fails, the entry waits for
// another attempt and is not delivered meanwhile. It reports whether the place was the last of a closed ledger.
func (s *subscription) bury(e *entry, reason string) (last bool) {
	reason = group.Reason(reason)
	outcome, err := s.moveToDead(e, reason)
	if err != nil {
		s.outage.begins("dead-letter", err)
		e.grave = reason
		e.graves++
		last, _ = s.ledger.postpone(e, max(readBackoff.Delay(e.graves), minBlock))
		return last
	}
	s.buried(e, outcome, reason)
	return s.ledger.forget(e)
}

// buried counts and logs the outcome of a move to the dead-letter stream.
func (s *subscription) buried(e *entry, outcome group.Outcome, reason string) {
	s.outage.over("dead-letter")
	switch outcome {
	case group.Moved:
		s.counts.deadLettered.Add(1)
		s.tellDeadLettered(e, reason)
		s.outage.log.Error("stream: entry dead-lettered", "entry", e.id, "deliveries", e.deliveries,
			"dead_letter", s.cfg.DeadLetter, "reason", reason)
	case group.Trimmed:
		s.noteTrimmed(e.id)
	default:
		s.outage.log.Debug("stream: refused entry claimed by another consumer", "entry", e.id)
	}
}

func (s *subscription) moveToDead(e *entry, reason string) (group.Outcome, error) {
	ctx, cancel := context.WithTimeout(s.detached, ackTimeout)
	defer cancel()
	return s.member.Bury(ctx, e.id, group.Grave{Key: s.cfg.DeadLetter, Reason: reason, Consumer: e.from, First: e.first, Last: e.read})
}
