package stream

import (
	"context"
	"errors"
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

// readGroup reads up to count entries: new ones after ">", else those pending for this consumer after an id.
func (s *subscription) readGroup(ctx context.Context, after string, count int, block time.Duration) ([]redis.XMessage, error) {
	cmd := s.groupCommand(ctx, after, count, block)
	if err := s.client.Process(ctx, readOnce{cmd}); err != nil {
		if errors.Is(err, redis.Nil) {
			return nil, nil
		}
		return nil, err
	}
	return entriesOf(cmd), nil
}

// groupCommand builds the command of readGroup: a pipeline that is never executed does it, read timeout and all.
func (s *subscription) groupCommand(ctx context.Context, after string, count int, block time.Duration) *redis.XStreamSliceCmd {
	return s.client.Pipeline().XReadGroup(ctx, s.readArgs(after, count, block))
}

func (s *subscription) readArgs(after string, count int, block time.Duration) *redis.XReadGroupArgs {
	return &redis.XReadGroupArgs{
		Group: s.cfg.Group, Consumer: s.consumer, Streams: []string{s.cfg.Stream, after}, Count: int64(count), Block: block,
	}
}

func entriesOf(cmd *redis.XStreamSliceCmd) []redis.XMessage {
	if streams := cmd.Val(); len(streams) > 0 {
		return streams[0].Messages
	}
	return nil
}

// fetched is an entry that was asked for by its id.
type fetched struct {
	ours   bool           // it is pending for this consumer
	values map[string]any // nil where the entry is gone from the stream
	err    error
}

// fetch reads entries pending for this consumer. Nothing is taken from another one: reading what is pending is atomic
// with looking whose it is.
func (s *subscription) fetch(ctx context.Context, ids []string) []fetched {
	pipe := s.client.Pipeline()
	cmds := make([]*redis.XStreamSliceCmd, len(ids))
	for i, id := range ids {
		cmds[i] = pipe.XReadGroup(ctx, s.readArgs(before(id), 1, noWait))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]fetched, len(ids))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			out[i].err = err
			continue
		}
		if found := entriesOf(cmd); len(found) > 0 && found[0].ID == ids[i] {
			out[i] = fetched{ours: true, values: found[0].Values}
		}
	}
	return out
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

// isReply is false for an error of the network: no server has answered.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}
