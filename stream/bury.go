package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxReason bounds the reason in a dead letter, in bytes.
const maxReason = 1024

// usedUp says whether an entry of so many deliveries is not to be delivered again.
func (s *subscription) usedUp(deliveries int64) bool {
	return s.cfg.MaxDeliveries > 0 && deliveries >= int64(s.cfg.MaxDeliveries)
}

// bury moves an entry in flight to the dead-letter stream and frees its place. Where that fails it waits for another
// attempt, and is not delivered meanwhile. It reports whether the place was the last of a closed ledger.
func (s *subscription) bury(e *entry, reason string) (last bool) {
	reason = bounded(reason)
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

// buried counts and logs what became of an entry that was to be moved.
func (s *subscription) buried(e *entry, outcome, reason string) {
	s.outage.over("dead-letter")
	switch outcome {
	case "moved":
		s.counts.deadLettered.Add(1)
		s.tellDeadLettered(e, reason)
		s.outage.log.Error("stream: entry went to the dead-letter stream", "entry", e.id, "deliveries", e.deliveries,
			"dead_letter", s.cfg.DeadLetter, "reason", reason)
	case "trimmed":
		s.noteTrimmed(e.id)
	default:
		s.outage.log.Debug("stream: refused entry was claimed by another consumer", "entry", e.id)
	}
}

func (s *subscription) moveToDead(e *entry, reason string) (string, error) {
	ctx, cancel := context.WithTimeout(s.detached, ackTimeout)
	defer cancel()
	reply, err := deadLetterScript.Run(ctx, s.client, []string{s.cfg.Stream, s.cfg.DeadLetter}, s.cfg.Group, s.consumer,
		e.id, reason, e.from, time.Since(e.first).Milliseconds(), time.Since(e.read).Milliseconds()).Slice()
	if err != nil {
		return "", err
	}
	if len(reply) == 0 {
		return "", errors.New("the reply is empty")
	}
	return fmt.Sprint(reply[0]), nil
}

// bounded cuts a text between two characters.
func bounded(text string) string {
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	return strings.ToValidUTF8(text, "")
}
