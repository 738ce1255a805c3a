package luatx

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// recording is the view of a transaction that its recorder uses.
type recording Tx

func (r *recording) Record(cmd redis.Cmder) (bool, error) { return (*Tx)(r).admitted(cmd) }

func (*recording) Exec() error {
	return fmt.Errorf("%w: Exec on a transaction's pipeline; return from its function instead", ErrNested)
}

// admitted checks each command under the recorder's lock. A command that it admits before the transaction closes is part of the
// commit.
func (tx *Tx) admitted(cmd redis.Cmder) (bool, error) {
	if tx.closed.Load() {
		return false, ErrTxClosed
	}
	decides, err := tx.admit(cmd.Args())
	if err != nil {
		tx.refuse(err) // fails the commit even if an adapter ignores the error
		return false, err
	}
	if decides {
		return true, ErrNotCommitted
	}
	return true, nil
}

// refuse stores the error that prevents the commit. Only the first one counts.
func (tx *Tx) refuse(err error) { tx.refused.CompareAndSwap(nil, &err) }

// admit checks a command before it is recorded and reports whether its caller needs the reply.
func (tx *Tx) admit(args []any) (bool, error) {
	if len(args) > 0 && args[0] == callCommand {
		return true, tx.checkCall(args)
	}
	spec, err := tx.check(args)
	return spec.Decides, err
}

func (tx *Tx) check(args []any) (command.Spec, error) {
	spec, err := command.Lookup(args)
	if err == nil {
		err = spec.Check(args)
	}
	if err != nil {
		return spec, fmt.Errorf("%w: %w", ErrCommandRefused, err)
	}
	if len(args) > maxArgs {
		return spec, fmt.Errorf("%w: %s has %d arguments, more than %d: split it", ErrTooLarge, spec.Name, len(args), maxArgs)
	}
	keys, err := spec.Keys(args)
	if err != nil {
		return spec, fmt.Errorf("%w: %w", ErrCommandRefused, err)
	}
	for _, i := range keys {
		if err := tx.checkKey(spec.Name, args[i]); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

func (tx *Tx) checkKey(name string, arg any) error {
	key, ok := textOf(arg)
	switch {
	case !ok || key == "":
		return fmt.Errorf("%w: %s has the key %#v; use a text that is not empty", ErrCommandRefused, name, arg)
	case slot.Of(key) != tx.home.Slot:
		return tx.crossSlot(name, key)
	case tx.home.Owns(key) && !isOwn(arg):
		return fmt.Errorf("%w: %s: key %q is luatx's own; choose another namespace or prefix", ErrCommandRefused, name, key)
	}
	tx.first.note(key)
	return nil
}

// firstKey is the first key of a transaction, for errors. Commands and guarded reads of several goroutines note theirs at once.
type firstKey struct {
	mu  sync.Mutex
	key string
}

func (f *firstKey) note(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key == "" {
		f.key = key
	}
}

func (f *firstKey) get() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key
}

// crossSlot returns the error for a key of another slot. It names the key, the transaction's tag and its first key, if any.
func (tx *Tx) crossSlot(name, key string) error {
	home := "tag {" + tx.tag + "}"
	if first := tx.first.get(); first != "" {
		home = fmt.Sprintf("key %q and %s", first, home)
	}
	return fmt.Errorf("%w: %s: key %q hashes to slot %d, %s of the transaction to slot %d", ErrCrossSlot, name, key, slot.Of(key), home, tx.home.Slot)
}

func textOf(arg any) (string, bool) {
	switch v := arg.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	case shard.Own:
		return string(v), true
	}
	return "", false
}

// isOwn reports whether a key argument was set by luatx itself, which may use its own keys.
func isOwn(arg any) bool {
	_, own := arg.(shard.Own)
	return own
}

// callCommand is the command name under which Tx.Call records a procedure call.
const callCommand = "luatx.call"

// Call records a call of the procedure name of Config.Procedures, in order with the transaction's other commands. Keys must share
// the transaction's slot. The returned command holds the procedure's reply after the commit, and ErrNotCommitted until then.
func (tx *Tx) Call(name string, keys []string, args ...any) *redis.Cmd {
	argv := make([]any, 0, 3+len(keys)+len(args))
	argv = append(argv, callCommand, name, len(keys))
	for _, key := range keys {
		argv = append(argv, key)
	}
	cmd := redis.NewCmd(context.Background(), append(argv, args...)...)
	if err := tx.Pipeline().Process(context.Background(), cmd); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// checkCall checks that the procedure exists, that the number of keys and arguments fits, and that the keys are allowed.
func (tx *Tx) checkCall(args []any) error {
	name, keys, rest, ok := splitCall(args)
	if !ok || len(args) > maxArgs {
		return fmt.Errorf("%w: %s; use Tx.Call, with at most %d keys and arguments", ErrCommandRefused, callCommand, maxArgs)
	}
	i := slices.IndexFunc(tx.t.cfg.Procedures, func(p Procedure) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("%w: there is no procedure %.80q; add it to Config.Procedures", ErrCommandRefused, name)
	}
	p := tx.t.cfg.Procedures[i]
	if p.Keys != nil && len(keys) != len(p.Keys) || p.Args != nil && len(rest) != len(p.Args) {
		return fmt.Errorf("%w: procedure %s takes %d keys and %d arguments, and was called with %d and %d",
			ErrCommandRefused, name, len(p.Keys), len(p.Args), len(keys), len(rest))
	}
	for _, key := range keys {
		if err := tx.checkKey(name, key); err != nil {
			return err
		}
	}
	return nil
}

// splitCall splits a recorded call into the procedure's name, keys and arguments. If args is not a valid call, ok is false.
func splitCall(args []any) (name string, keys, rest []any, ok bool) {
	if len(args) < 3 {
		return "", nil, nil, false
	}
	name, named := args[1].(string)
	n, counted := args[2].(int)
	if !named || !counted || n < 0 || n > len(args)-3 {
		return "", nil, nil, false
	}
	return name, args[3 : 3+n], args[3+n:], true
}

// layCall converts a recorded call into a command of the script and the positions of its keys. If args is not a call, ok is
// false.
func layCall(args []any) (commit.Command, []int, bool) {
	if args[0] != callCommand {
		return commit.Command{}, nil, false
	}
	_, keys, _, ok := splitCall(args)
	positions := make([]int, len(keys))
	for i := range positions {
		positions[i] = 3 + i
	}
	return commit.Command{Head: "p0" + strconv.Itoa(len(args)-1), Args: args[1:]}, positions, ok
}

// maxArgs is the maximum number of arguments of one command. Lua's stack does not hold more on every server.
const maxArgs = 5000
