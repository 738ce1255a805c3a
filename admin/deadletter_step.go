package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/outbox"
)

// deadScript acts on dead letters, deadImportScript adds some.
var (
	deadScript       = redis.NewScript(lua.Script("dead", nil))
	deadImportScript = redis.NewScript(lua.Script("deadimport", nil))
)

// maxIDs is the most entries that one script acts on.
const maxIDs = 100

// deadStep is an operation on dead letters, which takes a call of a script for each batch.
type deadStep struct {
	client redis.UniversalClient
	act    shard.Act
	audit  string // the key, in the slot of the dead-letter stream
}

// next returns the arguments of the next call.
func (s *deadStep) next(more ...any) []any {
	s.act.Call++
	return append([]any{s.act.Operation, s.act.Call, s.act.Who, s.act.Why}, more...)
}

// run acts on dead letters. It returns for each a letter, as internal/lua/_audit.lua has them, and the id of its new entry. That id is
// empty if there is none, and unknown if the reply of the server was lost.
func (s *deadStep) run(ctx context.Context, key, to, what string, ids []string) (letters []byte, entries []string, err error) {
	args := s.next(what)
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := runLoaded(ctx, s.client, deadScript, []string{key, to, s.audit}, args...)
	if letters, err = repliedLetters(reply, err, len(ids)); err != nil {
		return nil, nil, err
	}
	entries = make([]string, len(ids))
	if len(reply) > 2 {
		list, _ := reply[2].([]any)
		for i, letter := range letters {
			if letter == shard.ActDone && len(list) > 0 {
				entries[i], list = fmt.Sprint(list[0]), list[1:]
			}
		}
	}
	return letters, entries, s.packed(ctx, key, what, ids, letters, entries)
}

// runLoaded runs a script. It loads a script that the server does not know, because an operator of docs/acl.md may not run EVAL.
func runLoaded(ctx context.Context, client redis.UniversalClient, script *redis.Script, keys []string, args ...any) ([]any, error) {
	reply, err := script.EvalSha(ctx, client, keys, args...).Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err := script.Load(ctx, client).Err(); err != nil {
			return nil, err
		}
		reply, err = script.EvalSha(ctx, client, keys, args...).Slice()
	}
	return reply, err
}

// repliedLetters returns the letters of a reply.
func repliedLetters(reply []any, err error, n int) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if len(reply) > 1 {
		if letters, _ := reply[1].(string); len(letters) == n {
			return []byte(letters), nil
		}
	}
	return nil, fmt.Errorf("unexpected reply %.100q", fmt.Sprint(reply))
}

// packed puts back the dead letters that the script left alone because they are packed. A transaction of the client does that. It
// completes the letters and the ids of the new entries.
func (s *deadStep) packed(ctx context.Context, key, what string, ids []string, letters []byte, entries []string) error {
	var done []string
	var failed error
	for i := range letters {
		if letters[i] != 'p' {
			continue
		}
		letters[i] = shard.ActUnknown
		if failed != nil {
			continue
		}
		found, err := group.ReadDead(ctx, s.client, key, ids[i], ids[i], 1)
		if err == nil && len(found) == 1 {
			entries[i], err = group.PutBackPacked(ctx, s.client, key, found[0])
		}
		switch {
		case errors.Is(err, redis.Nil) || err == nil && len(found) == 0: // somebody else put it back
		case err != nil:
			failed = err
		default:
			letters[i], done = shard.ActDone, append(done, ids[i])
		}
	}
	if len(done) == 0 {
		return failed
	}
	s.act.Call++
	return errors.Join(failed, record(ctx, s.client, s.audit, s.act, what, done))
}

// record writes a record like internal/lua/_audit.lua.
func record(ctx context.Context, client redis.UniversalClient, key string, act shard.Act, what string, ids []string) error {
	named, err := json.Marshal(append([]string{}, ids[:min(len(ids), auditNamed)]...))
	if err != nil {
		return err
	}
	return client.XAdd(ctx, &redis.XAddArgs{
		Stream: key, MaxLen: auditKept, Approx: true,
		Values: []any{
			"operation", act.Operation, "call", act.Call, "who", act.Who, "act", what, "why", act.Why,
			"done", len(ids), "asked", len(ids), "ids", named, "answers", slices.Repeat([]byte{shard.ActDone}, len(ids)),
		},
	}).Err()
}

// deadStep returns an operation on a dead-letter stream. If its slot has a shard of the keyspace, the audit of the shard records the
// operation in the same step. Otherwise a key beside the dead-letter stream does, and copied must be called.
func (o *Operator) deadStep(operation, key, why string) (s *deadStep, copied bool) {
	s = &deadStep{client: o.core.Client, act: shard.Act{Operation: operation, Who: o.core.Name, Why: why}}
	if n := slot.Of(key); slices.Contains(o.transactor.Keyspace().Slots(), n) {
		s.audit = o.scripts.Shard(n).Key(keyAudit)
		return s, false
	}
	s.audit = group.AuditKey(key)
	return s, true
}

// copyRecord copies a record of the audit beside a dead-letter stream to the audit of the keyspace.
func (o *Operator) copyRecord(ctx context.Context, act shard.Act, what string, ids []string) error {
	first := o.first()
	if err := record(ctx, o.core.Client, first.Key(keyAudit), act, what, ids); err != nil {
		return &outbox.StorageError{Op: "record " + what, Slot: first.Slot, Err: err}
	}
	return nil
}

// newOperation returns the id of an operation.
func newOperation() string { return rand.Text()[:16] }
