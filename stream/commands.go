package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// noWait makes XREADGROUP return at once.
const noWait = -1

// A command in these is sent once. Sent again after a lost reply, XREADGROUP would return other entries, and XCLAIM
// none: what the first reply held would lie with this consumer, and nobody would know.
type (
	readOnce  struct{ *redis.XStreamSliceCmd }
	claimOnce struct{ *redis.StringSliceCmd }
)

// NoRetry tells the client.
func (readOnce) NoRetry() bool { return true }

// NoRetry tells the client.
func (claimOnce) NoRetry() bool { return true }

// groupCommand builds the command that reads up to count new entries: a pipeline that is never executed does it, read
// timeout and all.
func (s *subscription) groupCommand(ctx context.Context, count int, block time.Duration) *redis.XStreamSliceCmd {
	return s.client.Pipeline().XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: s.cfg.Group, Consumer: s.consumer, Streams: []string{s.cfg.Stream, ">"}, Count: int64(count), Block: block,
	})
}

func entriesOf(cmd *redis.XStreamSliceCmd) []redis.XMessage {
	if streams := cmd.Val(); len(streams) > 0 {
		return streams[0].Messages
	}
	return nil
}

// fetched is an entry that was asked for by its id.
type fetched struct {
	deliveries int64          // this one included; 0 where it is not pending for this consumer
	values     map[string]any // nil where the entry is gone from the stream
}

// fetch delivers entries once more, of those that are still this consumer's.
func (s *subscription) fetch(ctx context.Context, ids []string) ([]fetched, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	args := []any{s.cfg.Group, s.consumer}
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := fetchScript.Run(ctx, s.client, []string{s.cfg.Stream}, args...).Slice()
	if err != nil {
		return nil, err
	}
	if len(reply) != len(ids) {
		return nil, fmt.Errorf("script fetch: %d answers to %d entries", len(reply), len(ids))
	}
	out := make([]fetched, len(ids))
	for i, item := range reply {
		row, _ := item.([]any)
		if len(row) == 0 {
			continue
		}
		out[i].deliveries, _ = row[0].(int64)
		if len(row) > 1 && row[1] != nil {
			out[i].values = fieldMap(row[1])
		}
	}
	return out, nil
}

// fieldMap makes of names and values what the client makes of them.
func fieldMap(reply any) map[string]any {
	list, _ := reply.([]any)
	values := make(map[string]any, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		values[fmt.Sprint(list[i])] = list[i+1]
	}
	return values
}

// pendingOf lists what is pending for this consumer, from an id on. It asks inside a transaction: outside of one the
// client may ask a replica, which may not know yet.
func (s *subscription) pendingOf(ctx context.Context, from string, count int64) ([]redis.XPendingExt, error) {
	var cmd *redis.XPendingExtCmd
	_, err := s.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		cmd = pipe.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: s.cfg.Stream, Group: s.cfg.Group, Start: from, End: "+", Count: count, Consumer: s.consumer,
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// claimIDs makes this consumer the owner of entries that are still idle. Ids alone are asked for: Redis 6 answers a nil
// for an entry that is gone, in the midst of which the client would lose its way.
func (s *subscription) claimIDs(ctx context.Context, ids []string) ([]string, error) {
	cmd := s.client.Pipeline().XClaimJustID(ctx, &redis.XClaimArgs{
		Stream: s.cfg.Stream, Group: s.cfg.Group, Consumer: s.consumer, MinIdle: s.cfg.MaxIdleTime, Messages: ids,
	})
	if err := s.client.Process(ctx, claimOnce{cmd}); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// startID turns "$" into the id that it means now, so that a group made again later loses nothing.
func (s *subscription) startID(ctx context.Context) (string, error) {
	if s.cfg.StartID != "$" {
		return s.cfg.StartID, nil
	}
	last, err := s.client.XRevRangeN(ctx, s.cfg.Stream, "+", "-", 1).Result()
	if err != nil || len(last) == 0 {
		return "0", err
	}
	return last[0].ID, nil
}

// makeGroup makes the group where it does not exist, and the stream with it. It reports whether it did.
func (s *subscription) makeGroup(ctx context.Context) (made bool, err error) {
	err = s.client.XGroupCreateMkStream(ctx, s.cfg.Stream, s.cfg.Group, s.start).Err()
	if hasPrefix(err, "BUSYGROUP") {
		return false, nil
	}
	return err == nil, err
}

// hasPrefix tells an error reply by its code.
func hasPrefix(err error, code string) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), code)
}

// isNoGroup tells the reply for a group that is gone; before Redis 7 the error of a script begins otherwise.
func isNoGroup(err error) bool { return isReply(err) && strings.Contains(err.Error(), "NOGROUP") }

// isReply is false for an error of the network: no server has answered.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}
