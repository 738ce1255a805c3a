package rig

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// refusal is an error of the server.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// ErrRefused is what a Refuser answers.
const ErrRefused refusal = "ERR refused by the test"

// Refuser answers one command of a client in place of the server.
type Refuser struct {
	mu      sync.Mutex
	left    int // commands until then
	refused string
}

// Refuse returns the Refuser of a client.
func Refuse(client redis.UniversalClient) *Refuser {
	r := new(Refuser)
	client.AddHook(r)
	return r
}

// Arm makes it refuse the nth command from here on.
func (r *Refuser) Arm(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = n
}

// Disarm ends that, and returns what was refused; empty: nothing was.
func (r *Refuser) Disarm() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = 0
	return r.refused
}

// OfConnecting reports whether a client sends such a command by itself, to a connection that it has just made.
func OfConnecting(cmd redis.Cmder) bool { return cmd.Name() == "hello" || cmd.Name() == "client" }

// hits reports whether it is this command.
func (r *Refuser) hits(cmd redis.Cmder) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if OfConnecting(cmd) {
		return false
	}
	if r.left--; r.left != 0 {
		return false
	}
	r.refused = fmt.Sprintf("%.120s", fmt.Sprint(cmd.Args()...))
	cmd.SetErr(ErrRefused)
	return true
}

// DialHook implements redis.Hook.
func (r *Refuser) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (r *Refuser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.hits(cmd) {
			return ErrRefused
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (r *Refuser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		left := slices.DeleteFunc(slices.Clone(cmds), r.hits)
		if len(left) < len(cmds) && cmds[0].Name() == "multi" {
			for _, cmd := range cmds {
				cmd.SetErr(ErrRefused) // a refused command discards its transaction
			}
			return ErrRefused
		}
		var err error
		if len(left) > 0 {
			err = next(ctx, left)
		}
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				return cmd.Err() // as go-redis does, the first one
			}
		}
		return err
	}
}
