package luatx

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/commit"
)

// Read returns a client that reads now, from the master, and guards the transaction by the replies. The commit runs the reads
// again. If a reply has changed, the commit writes nothing and the handler runs again, up to Config.ConflictRetries times; then
// the commit returns ErrConflict. Only replies count: unlike with WATCH, a guarded HGET ignores a change of another field. The
// reads of one pipeline are atomic.
//
// The server computes a digest of the replies in the read and again in the commit. The replies to all reads of a transaction
// count their bytes, and 64 more for each element. A read that exceeds Config.GuardBytes returns ErrTooLarge, in most cases
// before the server has run it, and is no guard. A procedure reads on the server, without that limit.
//
// Read allows deterministic reads of keys in the transaction's slot, as docs/commands.md lists them. A read of a key with a
// recorded write returns ErrReadAfterWrite. An error of the server (WRONGTYPE …) is guarded like a reply.
//
// The reads of a handler that fails or commits nothing are verified too, because it may have acted on two replies that were never
// true at the same time.
func (tx *Tx) Read() redis.Cmdable {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.reader == nil {
		tx.reader = tx.t.source.Conn(tx.read)
	}
	return tx.reader
}

// ReaderFromContext returns the client with which an adapter reads: Read of the transaction in ctx, or fallback if there is none.
func ReaderFromContext(ctx context.Context, fallback redis.Cmdable) redis.Cmdable {
	if tx, ok := TxFromContext(ctx); ok {
		return tx.Read()
	}
	return fallback
}

// read executes commands now and keeps their digests as guards. It returns the first error, which may be that of a command.
func (tx *Tx) read(ctx context.Context, cmds []redis.Cmder) error {
	err := tx.guard(ctx, cmds)
	if err != nil {
		fail(cmds, err)
		return err
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) guard(ctx context.Context, cmds []redis.Cmder) error {
	if tx.closed.Load() {
		return ErrTxClosed
	}
	written := tx.writtenKeys()
	guards, keys, size := make([]commit.Guard, len(cmds)), make([]string, 0, len(cmds)), 0
	for i, cmd := range cmds {
		args, n, err := sendable(cmd.Args())
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCommandRefused, cmd.Name(), err)
		}
		size += n
		spec, err := tx.check(args)
		if err != nil {
			return err
		}
		if spec.Guard == command.GuardNone {
			return fmt.Errorf("%w: %s cannot be a guarded read: its reply may differ although nothing has changed, or it writes", ErrCommandRefused, spec.Name)
		}
		positions, err := spec.Keys(args)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCommandRefused, err)
		}
		for _, at := range positions {
			key, _ := textOf(args[at])
			if written[key] {
				return fmt.Errorf("%w: %s: key %q", ErrReadAfterWrite, spec.Name, key)
			}
			keys = append(keys, key)
		}
		args, _ = spec.Exact(args)
		guards[i] = commit.Guard{Order: guardOrders[spec.Guard], Args: args}
	}
	if len(guards) == 0 {
		return nil
	}
	if limit := tx.t.cfg.MaxCommands; len(guards) > limit {
		return fmt.Errorf("%w: %d guarded reads in one pipeline, more than MaxCommands, %d", ErrTooLarge, len(guards), limit)
	}
	ctx, cancel := context.WithTimeout(ctx, tx.t.cfg.CommitTimeout)
	defer cancel()
	reads, err := tx.t.commits.Read(ctx, tx.home, keys, guards, tx.guardRoom())
	if err != nil {
		return fmt.Errorf("luatx: read: %w", err)
	}
	if len(reads) < len(guards) {
		return tx.guardsTooLarge(cmds[len(reads)])
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	replies, counted := make([]any, len(reads)), tx.guardSize
	for i, read := range reads {
		guards[i].Digest, guards[i].Size = read.Digest, read.Size
		replies[i] = read.Reply
		if counted += read.Size; counted > tx.t.cfg.GuardBytes { // concurrent reads may each have fitted alone
			return tx.guardsTooLarge(cmds[i])
		}
	}
	if err := tx.t.filler.Fill(cmds, replies); err != nil {
		return fmt.Errorf("luatx: read: %w", err)
	}
	tx.guardSize = counted
	tx.guards, tx.guardKeys = append(tx.guards, guards...), append(tx.guardKeys, keys...)
	tx.guardBytes += size
	return nil
}

// guardRoom returns how much the replies of further guarded reads may count.
func (tx *Tx) guardRoom() int {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.t.cfg.GuardBytes - tx.guardSize
}

// guardsTooLarge returns the error of a guarded read whose reply exceeds Config.GuardBytes together with those before it.
func (tx *Tx) guardsTooLarge(cmd redis.Cmder) error {
	return fmt.Errorf("%w: guarded %s: the transaction's guarded reads exceed Config.GuardBytes, %d; read less, or use a procedure, which reads on the server",
		ErrTooLarge, strings.ToUpper(cmd.Name()), tx.t.cfg.GuardBytes)
}

// writtenKeys returns the keys that recorded commands may write.
func (tx *Tx) writtenKeys() map[string]bool {
	written := make(map[string]bool)
	for _, cmd := range tx.recorder.Cmds() {
		args := cmd.Args()
		if _, keys, _, ok := splitCall(args); ok && cmd.Name() == callCommand {
			for _, key := range keys {
				name, _ := textOf(key)
				written[name] = true
			}
			continue
		}
		spec, err := command.Lookup(args)
		if err != nil {
			continue // was refused when it was recorded
		}
		positions, _ := spec.WriteKeys(args)
		for _, at := range positions {
			key, _ := textOf(args[at])
			written[key] = true
		}
	}
	return written
}

// guardOrders are the names of the guard classes in internal/lua/_guard.lua.
var guardOrders = map[command.Guard]byte{command.GuardOrdered: 'o', command.GuardMembers: 'm', command.GuardPairs: 'p'}

// verify returns ErrConflict if a guarded reply has changed, or another error if the server could not verify the reads.
func (tx *Tx) verify(ctx context.Context) error {
	tx.mu.Lock()
	guards, keys := tx.guards, tx.guardKeys
	tx.mu.Unlock()
	if len(guards) == 0 {
		return nil
	}
	if limit := tx.t.cfg.MaxCommands; len(guards) > limit {
		return fmt.Errorf("%w: %d guarded reads in one pipeline, more than MaxCommands, %d", ErrTooLarge, len(guards), limit)
	}
	ctx, cancel := tx.lookup(ctx)
	defer cancel()
	reads, err := tx.t.commits.Read(ctx, tx.home, keys, guards, tx.t.cfg.GuardBytes)
	if err != nil {
		tx.t.cfg.Logger.Warn("luatx: the guarded reads could not be verified", "error", err)
		return fmt.Errorf("luatx: verify the guarded reads: %w", err)
	}
	if len(reads) < len(guards) {
		return ErrConflict // a reply that was within the limit has grown
	}
	for i, read := range reads {
		if read.Digest != guards[i].Digest {
			return ErrConflict
		}
	}
	return nil
}
