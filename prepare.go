package luatx

import (
	"encoding"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/commit"
)

// assemble builds the commit from the recorded transaction. It returns an error if the transaction may not be committed.
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
	out.Position = tx.position()
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
	if size > tx.t.cfg.MaxBytes {
		return fmt.Errorf("%w: %d bytes, more than MaxBytes, %d", ErrTooLarge, size, tx.t.cfg.MaxBytes)
	}
	return nil
}

// keySet lists each key once. It searches a short list, and uses a map from 16 keys on.
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

// lay converts a recorded command into a command of the script and the positions of its keys.
func lay(args []any) (commit.Command, []int, error) {
	if call, keys, ok := layCall(args); ok {
		return call, keys, nil
	}
	spec, err := command.Lookup(args)
	if err != nil {
		return commit.Command{}, nil, err
	}
	keys, err := spec.Keys(args)
	args, _ = spec.Exact(args)
	return commit.Command{Head: spec.Head(args), Args: args}, keys, err
}

// sendable checks that go-redis can send the arguments, and returns their size in bytes.
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
