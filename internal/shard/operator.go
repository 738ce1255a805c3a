package shard

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/piped"
)

// Mark is what a shard stores about a message that it has applied.
type Mark struct {
	Known, Older bool      // Older: in the generation before the current one
	Broken       string    // the commands that a rollback could not undo; empty: none
	Replies      bool      // replies are kept
	Begun        time.Time // when its generation began
	Identity     string    // the identity of the shard
}

// Mark looks up a digest. The reads are not atomic and change nothing. Mark does not check the retention.
func (s *Scripts) Mark(ctx context.Context, shard Shard, digest string) (Mark, error) {
	pipe := s.client.Pipeline()
	a, b := pipe.HMGet(ctx, shard.Key(keyInboxA), fieldID, digest), pipe.HMGet(ctx, shard.Key(keyInboxB), fieldID, digest)
	broken := pipe.HGet(ctx, shard.Key(keyBroken), digest)
	kept, keptB := pipe.HExists(ctx, shard.Key(keyResults), digest), pipe.HExists(ctx, shard.Key(keyResultsB), digest)
	cmds, _ := piped.Exec(ctx, pipe)
	for _, cmd := range cmds { // the error of Exec is that of the first command, which may be an empty reply
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return Mark{}, err
		}
	}
	rowA, rowB := a.Val(), b.Val()
	metaA, metaB := parseMeta(eval.Word(rowA[0])), parseMeta(eval.Word(rowB[0]))
	m := Mark{Broken: broken.Val(), Replies: kept.Val() || keptB.Val(), Identity: metaA.identity}
	switch {
	case rowA[1] != nil:
		m.Known, m.Begun = true, metaA.start
	case rowB[1] != nil:
		m.Known, m.Older, m.Begun = true, true, metaB.start
	}
	return m, nil
}

// Forget removes the id of a message from a shard's inbox, and reports whether the inbox contained it.
func (s *Scripts) Forget(ctx context.Context, shard Shard, act Act, digest, name string) (bool, error) {
	letters, err := s.actOn(ctx, s.forget, shard, act, []any{digest, name})
	return letters == string(ActDone), err
}

// Identity returns the identity that the scripts expect of a shard.
func (s *Scripts) Identity() string { return s.identity }

// Identities returns, by slot, the identity of each shard. Shards without an identity are omitted.
func (s *Scripts) Identities(ctx context.Context, slots []int) (map[int]string, error) {
	replies, _ := askSlots(ctx, s, slots, func(pipe redis.Pipeliner, shard Shard) *redis.StringCmd {
		return pipe.HGet(ctx, shard.Key(keyInboxA), fieldID)
	})
	found := map[int]string{}
	for i, reply := range replies {
		switch err := reply.Err(); {
		case err == nil:
			found[slots[i]] = parseMeta(reply.Val()).identity
		case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
		default:
			return nil, &SlotError{slots[i], err}
		}
	}
	return found, nil
}

// types maps the keys of a shard to their types.
var types = map[string]string{
	keyInboxA: "hash", keyInboxB: "hash", keyBodies: "hash", keyResults: "hash", keyResultsB: "hash", keyEntries: "hash", keyPending: "zset",
	keyParked: "zset", keySent: "zset", keyAttempts: "hash", keyErrors: "hash", keyBroken: "hash",
	keySeq: "string", keyRepair: "hash", keyDue: "zset", keyDecided: "zset", keyHeaders: "hash", keyLanes: "zset",
	keyRoutes: "hash", keyCounts: "hash", keyParkedBy: "hash", keyAudit: "stream", keySweep: "hash", keyPauses: "hash", keyPlans: "hash",
	keyProcesses: "hash", keyHeartbeats: "zset", keyHistory: "hash", keyPositions: "hash", keyGenerations: "hash", keyVoid: "none",
}

// WrongTypes returns the keys of slots whose type is not the one that luatx uses, with their types.
func (s *Scripts) WrongTypes(ctx context.Context, slots []int) (map[string]string, error) {
	wrong := map[string]string{}
	for _, n := range slots {
		pipe, replies := s.client.Pipeline(), map[string]*redis.StatusCmd{}
		for name := range types {
			replies[name] = pipe.Type(ctx, s.Shard(n).Key(name))
		}
		_, _ = piped.Exec(ctx, pipe) // each command contains its error
		for name, reply := range replies {
			if err := reply.Err(); err != nil {
				return nil, &SlotError{n, err}
			}
			if found := reply.Val(); found != "none" && found != types[name] {
				wrong[s.Shard(n).Key(name)] = found
			}
		}
	}
	return wrong, nil
}

// Denied returns those of the commands that the user is not allowed to run. Known is false if the server cannot report
// them.
func (s *Scripts) Denied(ctx context.Context, shard Shard, commands []string) (denied []string, known bool, err error) {
	args := make([]any, len(commands))
	for i, name := range commands {
		args[i] = name
	}
	reply, err := s.runner.Eval(ctx, s.rights, shard.keysOf("rights"), args)
	if err != nil {
		return nil, false, err
	}
	rows, _ := reply.([]any)
	if len(rows) == 0 {
		return nil, false, eval.Malformed("rights", reply)
	}
	for _, row := range rows[1:] {
		denied = append(denied, eval.Word(row))
	}
	return denied, eval.Word(rows[0]) == "1", nil
}
