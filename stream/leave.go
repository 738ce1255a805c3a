package stream

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
)

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

// leave removes a consumer whose name will not be used again, unless something is pending for it, or may yet become so.
func (s *subscription) leave() {
	if s.cfg.Consumer != "" || s.doubt {
		return
	}
	ctx, cancel := context.WithTimeout(s.detached, finishTimeout)
	defer cancel()
	pending, err := s.ownPending(ctx)
	if err == nil && len(pending) == 0 {
		err = s.client.XGroupDelConsumer(ctx, s.cfg.Stream, s.cfg.Group, s.consumer).Err()
	}
	if err != nil && !hasPrefix(err, "NOGROUP") {
		s.outage.log.Warn("stream: consumer stays in the group", "consumer", s.consumer, "error", err)
	}
}

// ownPending asks inside a transaction: outside of one the client may ask a replica, which may not know yet.
func (s *subscription) ownPending(ctx context.Context) ([]redis.XPendingExt, error) {
	var cmd *redis.XPendingExtCmd
	_, err := s.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		cmd = pipe.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: s.cfg.Stream, Group: s.cfg.Group, Start: "-", End: "+", Count: 1, Consumer: s.consumer,
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}
