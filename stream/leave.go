package stream

import "context"

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
			s.offer(ids)
			return
		}
	}
}

func (s *subscription) offer(ids []string) {
	ctx, cancel := context.WithTimeout(s.detached, finishTimeout)
	defer cancel()
	if err := s.hold(ctx, ids, s.cfg.MaxIdleTime, true); err != nil {
		s.outage.log.Warn("stream: entries read and not given out stay pending", "entries", len(ids), "error", err)
	}
}

// leave removes a consumer whose name will not be used again, unless something is pending for it, or may yet become so.
func (s *subscription) leave() {
	if s.cfg.Consumer != "" || s.doubt.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(s.detached, finishTimeout)
	defer cancel()
	pending, err := s.pendingOf(ctx, "-", 1)
	if err == nil && len(pending) == 0 {
		err = s.client.XGroupDelConsumer(ctx, s.cfg.Stream, s.cfg.Group, s.consumer).Err()
	}
	if err != nil && !isNoGroup(err) {
		s.outage.log.Warn("stream: consumer stays in the group", "consumer", s.consumer, "error", err)
	}
}
