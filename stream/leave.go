package stream

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/group"
)

// giveBack returns to the group what was read and never taken from the channel: as entries that nobody has seen yet,
// idle for so long that the next one who looks may claim them.
func (s *subscription) giveBack() {
	var ids []string
	for {
		select {
		case msg := <-s.out:
			source, _ := msg.InputSource()
			ids = append(ids, source.Entry)
			msg.Release()
		default:
			s.offer(ids, s.cfg.MaxIdleTime, true)
			return
		}
	}
}

// offerNacked returns to the group what was nacked and is not given out here any more: others may claim it when it is due.
func (s *subscription) offerNacked(entries []*entry) {
	byIdle := map[time.Duration][]string{}
	for _, e := range entries {
		idle := s.cfg.MaxIdleTime - max(e.due.Sub(s.ledger.now()), 0)
		idle = max(idle.Truncate(100*time.Millisecond), 0)
		byIdle[idle] = append(byIdle[idle], e.id)
	}
	for idle, ids := range byIdle {
		s.offer(ids, idle, false)
	}
}

// offer says how long entries have been idle; undelivered takes back their last delivery.
func (s *subscription) offer(ids []string, idle time.Duration, undelivered bool) {
	ctx, cancel := context.WithTimeout(s.detached, finishTimeout)
	defer cancel()
	if err := s.member.Hold(ctx, ids, idle, undelivered); err != nil {
		s.outage.log.Warn("stream: entries given back stay pending", "entries", len(ids), "error", err)
	}
}

// leave removes a consumer whose name will not be used again, unless something is pending for it, or may yet become so.
func (s *subscription) leave() {
	if s.cfg.Consumer != "" || s.doubt.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(s.detached, finishTimeout)
	defer cancel()
	if err := s.member.Leave(ctx); err != nil {
		s.outage.log.Warn("stream: consumer stays in the group", "consumer", s.member.Consumer, "error", err)
	}
}

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
