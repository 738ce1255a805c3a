package luatx

import (
	"encoding"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/lua"
)

// assemble turns the recorded transaction into a commit.
func (tx *Tx) assemble() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.cmds = tx.recorder.Cmds()
	if refused := tx.refused.Load(); refused != nil {
		return *refused
	}
	out := &tx.commit
	if n := len(tx.cmds) + len(out.Events) + len(tx.guards); n > tx.t.cfg.MaxCommands {
		return fmt.Errorf("%w: %d commands, events and guarded reads, more than MaxCommands, %d", ErrTooLarge, n, tx.t.cfg.MaxCommands)
	}
	size := tx.guardBytes
	out.Digest, out.Keep, out.Guards = tx.identity().Digest(), tx.keep, tx.guards
	for i := range out.Events {
		size += len(out.Events[i].ID) + len(out.Events[i].Body)
	}
	declared := keySet{keys: tx.few.keys[:0]}
	out.Commands = slices.Grow(tx.few.commands[:0], len(tx.cmds))
	for _, cmd := range tx.cmds {
		args, n, err := sendable(cmd.Args())
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCommandRefused, cmd.Name(), err)
		}
		size += n
		command, keys, err := lay(args)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCommandRefused, err)
		}
		out.Commands = append(out.Commands, command)
		for _, i := range keys {
			key, _ := textOf(args[i])
			declared.add(key)
		}
	}
	for _, key := range tx.guardKeys {
		declared.add(key)
	}
	out.Keys = declared.keys
	out.Commands, out.Order = streamsLast(tx.cmds, out.Commands)
	if size > tx.t.cfg.MaxBytes {
		return fmt.Errorf("%w: %d bytes, more than MaxBytes, %d", ErrTooLarge, size, tx.t.cfg.MaxBytes)
	}
	return nil
}

// keySet lists keys once each. Few are looked through, many are known.
type keySet struct {
	keys  []string
	known map[string]bool
}

func (s *keySet) add(key string) {
	const few = 16
	if len(s.keys) < few && slices.Contains(s.keys, key) || s.known[key] {
		return
	}
	s.keys = append(s.keys, key)
	switch {
	case s.known != nil:
		s.known[key] = true
	case len(s.keys) == few:
		s.known = make(map[string]bool)
		for _, key := range s.keys {
			s.known[key] = true
		}
	}
}

// lay makes a recorded command one of the script's, and lists where its keys stand.
func lay(args []any) (commit.Command, []int, error) {
	if call, keys, ok := layCall(args); ok {
		return call, keys, nil
	}
	spec, err := command.Lookup(args)
	if err != nil {
		return commit.Command{}, nil, err
	}
	keys, err := spec.Keys(args)
	args, _ = command.Exact(args)
	return commit.Command{Head: spec.Head(args), Args: args}, keys, err
}

// sendable checks that go-redis can send the arguments, and counts their bytes.
func sendable(args []any) ([]any, int, error) {
	size := 0
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		case nil, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64, bool,
			time.Time, time.Duration, net.IP, *string, *int, *int64, *float64, *bool:
			size += 8
		case encoding.BinaryMarshaler:
			b, err := v.MarshalBinary()
			if err != nil {
				return nil, 0, err
			}
			size += len(b)
		default:
			return nil, 0, fmt.Errorf("argument %d is a %T, which cannot be sent", i, arg)
		}
	}
	return args, size, nil
}

// streamsLast moves XADDs to the end of a transaction, where no copy of the stream is needed to undo them: those
// that leave the id to the server, and whose stream no command names that stays behind them. Those that must stay
// are undone as any other command. It returns where each command was recorded; nil: where it stands.
func streamsLast(cmds []redis.Cmder, commands []commit.Command) ([]commit.Command, []int) {
	last := len(commands) - 1
	for last >= 0 && isXAdd(commands[last]) {
		last--
	}
	if !slices.ContainsFunc(commands[:last+1], isXAdd) {
		return commands, nil
	}
	moves := 0
	named := make(map[string]bool)
	for i := last; i >= 0; i-- {
		args := cmds[i].Args()
		if xadd := isXAdd(commands[i]); xadd && !named[keyOf(args[1])] {
			moves++
			continue
		} else if xadd {
			commands[i].Head = "d1" + strings.TrimPrefix(commands[i].Head, "x0")
		}
		_, keys, _ := lay(args) // it has been laid before
		for _, at := range keys {
			named[keyOf(args[at])] = true
		}
	}
	if moves == 0 {
		return commands, nil
	}
	return reordered(commands)
}

func reordered(commands []commit.Command) ([]commit.Command, []int) {
	sorted, order := make([]commit.Command, 0, len(commands)), make([]int, 0, len(commands))
	for _, xadds := range []bool{false, true} {
		for i, c := range commands {
			if isXAdd(c) == xadds {
				sorted, order = append(sorted, c), append(order, i)
			}
		}
	}
	return sorted, order
}

// isXAdd reports whether a command is undone by the id of the entry it added.
func isXAdd(c commit.Command) bool { return c.Class() == lua.Appended }

func keyOf(arg any) string {
	key, _ := textOf(arg)
	return key
}
