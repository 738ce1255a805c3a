package luatx

import (
	"encoding"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/script"
)

// prepare lays the transaction out for the script.
func (tx *Tx) prepare() (script.Tx, []redis.Cmder, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	cmds := tx.recorder.Cmds()
	if refused := tx.refused.Load(); refused != nil {
		return script.Tx{}, cmds, *refused
	}
	if n := len(cmds) + len(tx.events) + len(tx.guards); n > tx.t.cfg.MaxCommands {
		return script.Tx{}, cmds, fmt.Errorf("%w: %d commands, events and guarded reads, more than MaxCommands, %d", ErrTooLarge, n, tx.t.cfg.MaxCommands)
	}
	size := tx.guardBytes
	out := script.Tx{Digest: tx.id.digest(), Keep: tx.keep, Guards: tx.guards}
	for _, event := range tx.events {
		size += len(event.ID) + len(event.Body)
		out.Events = append(out.Events, script.Event(event))
	}
	declared := make(map[string]bool)
	declare := func(key string) {
		if !declared[key] {
			declared[key] = true
			out.Keys = append(out.Keys, key)
		}
	}
	for _, cmd := range cmds {
		args, n, err := sendable(cmd.Args())
		if err != nil {
			return script.Tx{}, cmds, fmt.Errorf("%w: %s: %w", ErrCommandRefused, cmd.Name(), err)
		}
		size += n
		command, keys, err := lay(args)
		if err != nil {
			return script.Tx{}, cmds, fmt.Errorf("%w: %w", ErrCommandRefused, err)
		}
		out.Commands = append(out.Commands, command)
		for _, i := range keys {
			key, _ := text(args[i])
			declare(key)
		}
	}
	for _, key := range tx.guardKeys {
		declare(key)
	}
	out.Commands, out.Order = streamsLast(cmds, out.Commands)
	if size > tx.t.cfg.MaxBytes {
		return script.Tx{}, cmds, fmt.Errorf("%w: %d bytes, more than MaxBytes, %d", ErrTooLarge, size, tx.t.cfg.MaxBytes)
	}
	return out, cmds, nil
}

// lay makes a recorded command one of the script's, and lists where its keys stand.
func lay(args []any) (script.Command, []int, error) {
	if call, keys, ok := layCall(args); ok {
		return call, keys, nil
	}
	spec, err := command.Lookup(args)
	if err != nil {
		return script.Command{}, nil, err
	}
	keys, err := spec.Keys(args)
	args, _ = command.Exact(args)
	return script.Command{Head: spec.Head(args), Args: args}, keys, err
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
