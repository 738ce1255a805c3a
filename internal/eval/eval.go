// Package eval runs Lua scripts on Redis until the server replies. It loads scripts, retries calls, and decides which calls share
// a round trip. It does not depend on what the scripts do.
package eval

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script
	"encoding/hex"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Script is a complete script.
type Script struct {
	Name, Text string

	sha      string
	argument any // the sha
}

// Argv returns the first arguments of a call with the given number of keys. It has capacity for the keys and for args
// arguments.
func (s *Script) Argv(keys, args int) []any { return s.ArgvIn(nil, keys, args) }

// ArgvIn is like Argv, but uses the memory of the given list if it suffices.
func (s *Script) ArgvIn(room []any, keys, args int) []any {
	return append(slices.Grow(room[:0], FirstKey+keys+args), "evalsha", s.argument, keys)
}

// FirstKey is the index of the first key in the arguments of a call.
const FirstKey = 3

// Runner runs scripts with a client.
type Runner struct {
	client    redis.UniversalClient
	log       *slog.Logger
	namespace string
	scripts   []*Script
	queue     *queue
	wakes     wakes
	warned    atomic.Bool // the log has a warning that Durability is not available
}

// New returns a Runner. It does no I/O. The channels of wake-ups belong to the namespace.
func New(client redis.UniversalClient, namespace string, log *slog.Logger) *Runner {
	r := &Runner{client: client, namespace: namespace, log: log}
	r.queue = &queue{runner: r, nodes: make(map[string]*nodeQueue)}
	r.wakes.runner = r
	return r
}

// Client returns the client.
func (r *Runner) Client() redis.UniversalClient { return r.client }

// Log returns the logger.
func (r *Runner) Log() *slog.Logger { return r.log }

// NewScript returns a script. The caller is responsible for loading it.
func NewScript(name, text string) *Script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	sha := hex.EncodeToString(sum[:])
	return &Script{name, text, sha, sha}
}

// Script adds a script. All scripts must be added before the Runner is used.
func (r *Runner) Script(name, text string) *Script {
	s := NewScript(name, text)
	r.scripts = append(r.scripts, s)
	return s
}

// SHA returns the SHA1 by which the server identifies the script.
func (s *Script) SHA() string { return s.sha }

// SHAs lists the names and SHA1s of the scripts.
func (r *Runner) SHAs() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, script := range r.scripts {
			if !yield(script.Name, script.sha) {
				return
			}
		}
	}
}

// Load loads every script into the server's cache. On a cluster, it loads them into the cache of each node.
func (r *Runner) Load(ctx context.Context) error {
	for _, script := range r.scripts {
		if err := r.LoadScript(ctx, script); err != nil {
			return err
		}
	}
	return nil
}

// LoadScript is like Load for one script.
func (r *Runner) LoadScript(ctx context.Context, script *Script) error {
	if err := r.client.ScriptLoad(ctx, script.Text).Err(); err != nil {
		return &ServerError{script.Name, err}
	}
	return nil
}

// Ask calls f with a client of the node that serves a key. It returns when f succeeds or the server rejects the request
// permanently. After any other error it retries, like Eval, until ctx ends. It passes the error of each failed attempt
// to failed.
func (r *Runner) Ask(ctx context.Context, key string, failed func(error), f func(ctx context.Context, node redis.UniversalClient) error) error {
	for try := 0; ; try++ {
		node, err := r.master(ctx, key)
		if err == nil {
			err = f(ctx, node)
		}
		if err == nil || answered(err) && !passes(err) {
			return err
		}
		failed(err)
		r.reload(ctx, err)
		if !pause(ctx, try) {
			return err
		}
	}
}

// Node returns the address of the node that serves a key, or "" if the client is not a cluster client. The client must
// have loaded the state of the cluster, as it has after Ask.
func (r *Runner) Node(ctx context.Context, key string) string {
	return r.queue.node(ctx, key)
}
