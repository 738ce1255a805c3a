package stream

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
)

// pendingPage is how many pending entries are looked at in one command.
const pendingPage = 100

// claim takes over entries that nobody has acked for MaxIdleTime, as far as there are places for them.
func (r *reader) claim(ctx context.Context) error {
	known := r.ledger.known()
	for from := "-"; ctx.Err() == nil; {
		// Which of them are idle is found out here: Redis 6.0 cannot be asked.
		page, err := r.client.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: r.cfg.Stream, Group: r.cfg.Group, Start: from, End: "+", Count: pendingPage,
		}).Result()
		if err != nil {
			return err
		}
		var idle []string
		for _, p := range page {
			if p.Idle >= r.cfg.MaxIdleTime && !known[p.ID] {
				idle = append(idle, p.ID)
			}
		}
		for len(idle) > 0 {
			places, _ := r.ledger.tryReserve(len(idle), false)
			if places == 0 {
				return nil
			}
			if err := r.takeOver(ctx, idle[:places]); err != nil {
				return err
			}
			idle = idle[places:]
		}
		if len(page) < pendingPage {
			return nil
		}
		from = behind(page[len(page)-1].ID)
	}
	return nil
}

// takeOver claims entries and gives them out, on a place taken for each.
func (r *reader) takeOver(ctx context.Context, ids []string) error {
	places := len(ids)
	defer func() { r.ledger.release(places) }()
	claimed, err := r.claimIDs(ctx, ids)
	if err != nil {
		return err
	}
	for i, f := range r.fetch(ctx, claimed) {
		if f.err != nil {
			return f.err
		}
		if f.ours && r.give(claimed[i], f.values) {
			r.counts.claimed.Add(1)
			places--
		}
	}
	return r.findTrimmed(ctx, slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(claimed, id) }))
}

// findTrimmed notes which of the entries that could not be claimed are gone from the stream: since Redis 7.0 the claim
// itself removes those from the group. The others were acked or claimed meanwhile.
func (r *reader) findTrimmed(ctx context.Context, ids []string) error {
	for _, id := range ids {
		found, err := r.client.XRangeN(ctx, r.cfg.Stream, id, id, 1).Result()
		if err != nil {
			return err
		}
		if len(found) == 0 {
			r.noteTrimmed(id)
		}
	}
	return nil
}

// giveBack returns to the group what was read and never taken from the channel: as entries idle for long, which the
// next one who looks may claim. Entries that waited here so long that they may be another's by now are left alone.
func (s *subscription) giveBack() {
	var ids []any
	for {
		select {
		case msg := <-s.out:
			if id, fresh := s.untaken(msg); fresh {
				ids = append(ids, id)
			}
			msg.Release()
		default:
			s.claimIdle(ids)
			return
		}
	}
}

func (s *subscription) untaken(msg *message.RawMessage) (id string, fresh bool) {
	source, _ := msg.InputSource()
	return source.Entry, s.ledger.heldFor(source.Entry) < s.cfg.MaxIdleTime/2
}

// claimIdle claims entries for this consumer itself, only to make them look idle.
func (s *subscription) claimIdle(ids []any) {
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.detached, finishTimeout)
	defer cancel()
	args := append([]any{"xclaim", s.cfg.Stream, s.cfg.Group, s.consumer, 0}, ids...)
	cmd := redis.NewCmd(ctx, append(args, "idle", s.cfg.MaxIdleTime.Milliseconds(), "justid")...)
	cmd.SetFirstKeyPos(1)
	if err := s.client.Process(ctx, cmd); err != nil {
		s.outage.log.Warn("stream: entries read and not given out stay pending", "entries", len(ids), "error", err)
	}
}

// leave removes a consumer whose name will not be used again, unless something is pending for it. Nothing can become
// pending in between: nobody reads under that name any more.
func (s *subscription) leave() {
	if s.cfg.Consumer != "" {
		return
	}
	ctx, cancel := context.WithTimeout(s.detached, finishTimeout)
	defer cancel()
	pending, err := s.client.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: s.cfg.Stream, Group: s.cfg.Group, Start: "-", End: "+", Count: 1, Consumer: s.consumer,
	}).Result()
	if err == nil && len(pending) == 0 {
		err = s.client.XGroupDelConsumer(ctx, s.cfg.Stream, s.cfg.Group, s.consumer).Err()
	}
	if err != nil && !hasPrefix(err, "NOGROUP") {
		s.outage.log.Warn("stream: consumer stays in the group", "consumer", s.consumer, "error", err)
	}
}
