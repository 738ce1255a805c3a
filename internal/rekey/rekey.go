// Package rekey gives keys the names of a Keyspace, which move most of them to other slots of a cluster. It can be
// killed at any point and run again: a key has its old name, or its new one, or is a copy under the new one whose old one
// is still there, and goes on from there. It never overwrites, and never deletes what is not there twice.
package rekey

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/slot"
)

// Config says which keys get which names.
type Config struct {
	// Pattern selects keys, as SCAN's MATCH does. Required.
	Pattern string
	// Map names the new key of each. Required.
	Map Map
	// Keyspace builds the new names.
	Keyspace luatx.Keyspace
	// Apply renames; without it nothing is written.
	Apply bool
}

// Outcome is what became of a key, or in a dry run what would.
type Outcome int

// The outcomes.
const (
	// Renamed: it has its new name now.
	Renamed Outcome = iota
	// Completed: it had been copied by a run that did not come to its end; now the old one is gone.
	Completed
	// Named: its name is one of the keyspace's already.
	Named
	// Unfit: the map has no new name for it.
	Unfit
	// Taken: there is another key of the new name. Both stay.
	Taken
	// Gone: it expired, was deleted or was renamed by somebody else meanwhile.
	Gone
	// Failed: the server refused, or the key changed while it was moved. It has its old name.
	Failed

	// Outcomes is how many there are.
	Outcomes
)

// Step is what was done about a key.
type Step struct {
	Old, New string // New is empty where there is none
	Outcome  Outcome
	// Moved says that the new name is in another slot.
	Moved bool
	// Err says why, for Unfit and Failed.
	Err error
}

const (
	workers   = 8
	scanCount = 1000
)

// Run looks at every key that matches and calls each for it, one call at a time. The error names the key that could not
// be asked about; keys that the server refused are steps, and the run goes on.
func Run(ctx context.Context, client redis.UniversalClient, cfg Config, each func(Step)) error {
	if cfg.Pattern == "" || cfg.Map.old == nil {
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

// scan sends every key that matches, of every master.
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

// step does what there is to do about a key. A refusal of the server is part of the step; the error is any other.
func (r *runner) step(ctx context.Context, key string) (Step, error) {
	s := Step{Old: key}
	if isNamed(r.cfg.Keyspace, key) {
		s.New, s.Outcome = key, Named
		return s, nil
	}
	name, unfit := r.cfg.Map.rename(r.cfg.Keyspace, key)
	if unfit != nil {
		s.Outcome, s.Err = Unfit, unfit
		return s, nil //nolint:nilerr // the step has it
	}
	s.New, s.Moved = name, slot.Of(key) != slot.Of(name)
	var err error
	switch {
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

// isRefusal says that a server has answered.
func isRefusal(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !errors.Is(err, redis.Nil)
}

// look is the dry run.
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

// rename is for keys of one server: there is no moment between.
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
