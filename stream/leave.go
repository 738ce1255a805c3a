package stream

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/group"
)

// giveBack returns entries to the group that were read but never taken from the channel. They count as undelivered, and are
// idle for so long that the next consumer may claim them.
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

// offerNacked returns nacked entries to the group that this consumer does not deliver any more. Others may claim them when
// they are due.
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

// offer sets the idle time of entries. If undelivered is set, their last delivery does not count.
func (s *subscription) offer(ids []string, idle time.Duration, undelivered bool) {
	ctx, cancel := context.WithTimeout(s.detached, finishTimeout)
	defer cancel()
	if err := s.member.Hold(ctx, ids, idle, undelivered); err != nil {
		s.outage.log.Warn("stream: releasing entries failed", "entries", len(ids), "error", err)
	}
}

// leave removes a consumer whose name is not used again, unless entries are pending for it or may still become so.
func (s *subscription) leave() {
	if s.cfg.Consumer != "" || s.doubt.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(s.detached, finishTimeout)
	defer cancel()
	if err := s.member.Leave(ctx); err != nil {
		s.outage.log.Warn("stream: consumer not removed", "consumer", s.member.Consumer, "error", err)
	}
}

// dismissAfter is how long a consumer may be idle, as a multiple of the idle time of an entry.
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
