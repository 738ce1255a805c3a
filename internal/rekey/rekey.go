// Package rekey renames keys to those of a Keyspace, which moves most of them to other slots of a cluster. It can be
// killed at any point and run again. A key then has its old name, or its new name, or both: a copy under the new name
// with the old key still in place. The next run continues from there. Rekey never overwrites a key, and deletes an old
// key only if its copy exists.
package rekey

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// Config selects keys and their new names.
type Config struct {
	// Pattern selects keys, like the MATCH of SCAN. Required.
	Pattern string
	// Map derives the new name of each key. Required.
	Map Map
	// Keyspace builds the new names.
	Keyspace luatx.Keyspace
	// Apply renames the keys. Without it, Run writes nothing.
	Apply bool
}

// Outcome is the result for a key, or the expected result in a dry run.
type Outcome int

// The outcomes.
const (
	// Renamed: the key has its new name.
	Renamed Outcome = iota
	// Completed: an interrupted run had copied the key, and this run deleted the old key.
	Completed
	// Named: the key already has a name of the keyspace.
	Named
	// Unfit: the map has no new name for the key.
	Unfit
	// Taken: another key has the new name. Both keys stay.
	Taken
	// Gone: the key expired, or another client deleted or renamed it during the run.
	Gone
	// Failed: the server returned an error, or the key changed during its move. The key has its old name.
	Failed

	// Outcomes is the number of outcomes.
	Outcomes
)

// Step is the result for one key.
type Step struct {
	Old, New string // New is empty if there is no new name
	Outcome  Outcome
	// Moved reports whether the new name is in another slot.
	Moved bool
	// Err is the reason for Unfit and Failed.
	Err error
}

const (
	workers   = 8
	scanCount = 1000
)

// Run processes every key that matches, and calls each with the result for the key, one call at a time. If the server
// returns an error for a key, its Step has the error and the run continues. On any other failure, such as a lost
// connection, Run stops and returns an error that names the key.
func Run(ctx context.Context, client redis.UniversalClient, cfg Config, each func(Step)) error {
	if cfg.Pattern == "" || cfg.Map.split == nil {
		return errors.New("rekey: Config.Pattern or Map is empty; set both")
	}
	if _, err := cfg.Keyspace.Tag("x"); err != nil {
		return err
	}
	_, cluster := client.(*redis.ClusterClient)
	r := runner{client: client, cfg: cfg, cluster: cluster, drop: redis.NewScript(lua.Script("drop", nil))}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	keys := make(chan string, scanCount)
	var working sync.WaitGroup
	var mu sync.Mutex
	for range workers {
		working.Go(func() {
			for key := range keys {
				step, err := r.step(ctx, key)
				if err != nil {
					stop(fmt.Errorf("rekey: key %q: %w", key, err))
					return
				}
				mu.Lock()
				each(step)
				mu.Unlock()
			}
		})
	}
	err := r.scan(ctx, keys)
	close(keys)
	working.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

type runner struct {
	client  redis.UniversalClient
	cfg     Config
	cluster bool
	drop    *redis.Script
}

// scan sends every key of every master that matches.
func (r *runner) scan(ctx context.Context, keys chan<- string) error {
	node := func(ctx context.Context, node redis.Cmdable) error {
		for cursor := uint64(0); ; {
			page, next, err := node.Scan(ctx, cursor, r.cfg.Pattern, scanCount).Result()
			if err != nil {
				return fmt.Errorf("rekey: scan: %w", err)
			}
			for _, key := range page {
				select {
				case keys <- key:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			if next == 0 {
				return nil
			}
			cursor = next
		}
	}
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return node(ctx, master) })
	}
	return node(ctx, r.client)
}

// step processes a key. The Step holds an error that the server returned. Any other error is returned.
func (r *runner) step(ctx context.Context, key string) (Step, error) {
	s := Step{Old: key}
	name, unfit := r.cfg.Map.rename(r.cfg.Keyspace, key)
	switch {
	case unfit != nil:
		s.Outcome, s.Err = Unfit, unfit
		return s, nil //nolint:nilerr // the step has it
	case name == key:
		s.New, s.Outcome = key, Named
		return s, nil
	}
	s.New, s.Moved = name, slot.Of(key) != slot.Of(name)
	owned, err := r.isOwned(ctx, key)
	switch {
	case err != nil:
	case owned:
		return Step{Old: key, Outcome: Unfit, Err: errShard}, nil
	case !r.cfg.Apply:
		s.Outcome, err = r.look(ctx, s)
	case s.Moved && r.cluster:
		s.Outcome, err = r.move(ctx, key, name)
	default:
		s.Outcome, err = r.rename(ctx, key, name)
	}
	if err != nil && (isRefusal(err) || errors.Is(err, errChanged)) {
		s.Outcome, s.Err = Failed, err
		return s, nil
	}
	return s, err
}

// isOwned reports whether a key is one of luatx's own keys of a shard.
func (r *runner) isOwned(ctx context.Context, key string) (bool, error) {
	inbox, ok := shard.InboxOf(key)
	if !ok {
		return false, nil
	}
	return r.client.HExists(ctx, inbox, shard.IdentityField).Result()
}

// isRefusal reports whether an error is a server's reply.
func isRefusal(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !errors.Is(err, redis.Nil)
}

// look returns the expected outcome for a dry run.
func (r *runner) look(ctx context.Context, s Step) (Outcome, error) {
	there, err := r.client.Exists(ctx, s.New).Result()
	switch {
	case err != nil || there == 0:
		return Renamed, err
	case !s.Moved || !r.cluster:
		return Taken, nil
	}
	was, hasOld, err := r.dumpOf(ctx, s.Old)
	if err != nil || !hasOld {
		return Gone, err
	}
	now, hasNew, err := r.dumpOf(ctx, s.New)
	if err != nil || !hasNew {
		return Renamed, err
	}
	same, err := r.same(ctx, s.Old, was, s.New, now)
	if err != nil || same {
		return Completed, err
	}
	return Taken, nil
}

// rename renames a key on one server, in one atomic step.
func (r *runner) rename(ctx context.Context, key, name string) (Outcome, error) {
	done, err := r.client.RenameNX(ctx, key, name).Result()
	switch {
	case isRefusal(err) && err.Error() == "ERR no such key":
		return Gone, nil
	case err != nil:
		return Failed, err
	case !done:
		return Taken, nil
	}
	return Renamed, nil
}
