package stream

import (
	"context"

	"github.com/luatx/luatx/internal/group"
)

// usedUp reports whether an entry with so many deliveries must not be delivered again.
func (s *subscription) usedUp(deliveries int64) bool {
	return s.cfg.MaxDeliveries > 0 && deliveries >= int64(s.cfg.MaxDeliveries)
}

// deadLetter moves an entry in flight to the dead-letter stream and releases its place. If that fails, the entry waits for
// another attempt and is not delivered meanwhile. It reports whether the place was the last of a closed ledger.
func (s *subscription) deadLetter(e *entry, reason string) (last bool) {
	reason = group.Reason(reason)
	outcome, err := s.writeDeadLetter(e, reason)
	if err != nil {
		s.outage.begins("dead-letter", err)
		e.deadReason = reason
		e.deadTries++
		last, _ = s.ledger.postpone(e, max(readBackoff.Delay(e.deadTries), minBlock))
		return last
	}
	s.noteDeadLetter(e, outcome, reason)
	return s.ledger.forget(e)
}

// noteDeadLetter counts and logs the outcome of a move to the dead-letter stream.
func (s *subscription) noteDeadLetter(e *entry, outcome group.Outcome, reason string) {
	s.outage.over("dead-letter")
	switch outcome {
	case group.Moved:
		s.counts.deadLettered.Add(1)
		s.notifyDeadLettered(e, reason)
		s.outage.log.Error("stream: entry dead-lettered", "entry", e.id, "deliveries", e.deliveries,
			"dead_letter", s.cfg.DeadLetter, "reason", reason)
	case group.Trimmed:
		s.noteTrimmed(e.id)
	default:
		s.outage.log.Debug("stream: refused entry claimed by another consumer", "entry", e.id)
	}
}

// writeDeadLetter moves an entry from the group to the dead-letter stream.
func (s *subscription) writeDeadLetter(e *entry, reason string) (group.Outcome, error) {
	ctx, cancel := context.WithTimeout(s.detached, ackTimeout)
	defer cancel()
	return s.member.Bury(ctx, e.id, group.Grave{Key: s.cfg.DeadLetter, Reason: reason, Consumer: e.from, First: e.first, Last: e.read})
}
