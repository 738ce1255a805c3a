// Package repair makes the indexes and the bodies of a Transactor's shards consistent again after keys were lost, restored or
// changed by hand. The scripts of luatx keep them consistent. Check lists inconsistencies, Fix repairs them, and the Run of a
// Worker does so on a schedule, in one process at a time.
package repair

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// Config configures a Worker. Its zero value works.
type Config struct {
	// Interval is the interval at which all processes together check every shard once. Defaults to 10 minutes.
	Interval time.Duration
	// Step is the approximate number of ids that one script checks, which blocks the server meanwhile. Defaults to 100; at most
	// 1000.
	Step int
	// Lease is the time after which another process takes over the round of a dead process. Defaults to 30 seconds; at least 100
	// ms.
	Lease time.Duration
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

const (
	maxStep     = 1000
	minLease    = 100 * time.Millisecond
	minInterval = time.Millisecond
	// stepTimeout bounds one script of a round, with its retries.
	stepTimeout = 5 * time.Second
	// shardsAtOnce is the number of shards that one pipeline checks for any content.
	shardsAtOnce = 256
)

func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, 10*time.Minute)
	c.Step = cmp.Or(c.Step, 100)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c Config) validate() error {
	switch {
	case c.Interval < minInterval:
		return fmt.Errorf("repair: Config.Interval is %v; use 0 for the default, or at least %v", c.Interval, minInterval)
	case c.Step < 1 || c.Step > maxStep:
		return fmt.Errorf("repair: Config.Step is %d; use 1 to %d", c.Step, maxStep)
	case c.Lease < minLease:
		return fmt.Errorf("repair: Config.Lease is %v; use at least %v", c.Lease, minLease)
	}
	return nil
}

// A Worker repairs the shards of a Transactor. It is safe for concurrent use, and may run beside commits and relays: each step
// checks and repairs atomically.
type Worker struct {
	scripts *shard.Scripts
	shards  []int
	cfg     Config
	name    string // owner in the lease
	running atomic.Bool
	mine    atomic.Bool // set while this process has the turn
	stats   stats

	processes *process.List
	history   *history.History
}

// New returns a Worker for a Transactor. It does no I/O.
func New(t *luatx.Transactor, cfg Config) (*Worker, error) {
	if t == nil {
		return nil, errors.New("repair: New needs a Transactor")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	inside := link.Of(t)
	return &Worker{scripts: inside.Scripts, shards: t.Keyspace().Slots(), cfg: cfg, name: rand.Text(), processes: inside.Processes, history: inside.History}, nil
}

// Check lists the inconsistencies in the shards of these slots, or in all shards if there are none, and changes nothing. A slot
// that cannot be checked yields an error, and Check continues with the others. The listing ends with ctx. It is not a snapshot:
// Check reads shards and steps one after the other.
func (w *Worker) Check(ctx context.Context, slots ...int) iter.Seq2[Finding, error] {
	return w.list(ctx, false, slots)
}

// Fix repairs each inconsistency while it lists it. If the caller stops the listing, the remaining ones are unchanged. Fix lists
// findings that are not fixable, and never overwrites them.
func (w *Worker) Fix(ctx context.Context, slots ...int) iter.Seq2[Finding, error] {
	return w.list(ctx, true, slots)
}

func (w *Worker) list(ctx context.Context, fix bool, slots []int) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		for _, n := range slots {
			if n < 0 || n >= slot.Count {
				yield(Finding{}, fmt.Errorf("repair: slot %d; use 0 to %d", n, slot.Count-1))
				return
			}
		}
		if len(slots) == 0 {
			slots = w.shards
		}
		look{Worker: w, fix: fix, yield: yield}.shards(ctx, slots)
	}
}

// look is a walk through shards. Its methods return false when the walk is over.
type look struct {
	*Worker
	fix   bool
	yield func(Finding, error) bool
	step  func(ctx context.Context, slot int) (context.Context, context.CancelFunc, error) // called before each script; may be nil
	left  func(slots ...int)                                                               // called for shards that could not be checked; may be nil
}

func (l look) shards(ctx context.Context, slots []int) bool {
	for len(slots) > 0 {
		chunk := slots[:min(len(slots), shardsAtOnce)]
		slots = slots[len(chunk):]
		existing, ok := l.existing(ctx, chunk)
		if !ok {
			return false
		}
		for _, n := range existing {
			if !l.shard(ctx, n) {
				return false
			}
		}
	}
	return true
}

// existing returns the non-empty shards. Most of 16,384 are empty.
func (l look) existing(ctx context.Context, slots []int) ([]int, bool) {
	bounded, done, err := l.begin(ctx, slots[0])
	if err != nil {
		return nil, l.failed(ctx, err)
	}
	defer done()
	existing, unasked, err := l.scripts.Existing(bounded, slots)
	if err != nil && !l.failed(ctx, fmt.Errorf("repair: find shards from slot %d on: %w", slots[0], err), unasked...) {
		return nil, false
	}
	return existing, true
}

// shard checks one shard, step by step.
func (l look) shard(ctx context.Context, n int) bool {
	var at shard.RepairAt
	for done := false; !done; {
		bounded, end, err := l.begin(ctx, n)
		if err != nil {
			return l.failed(ctx, err)
		}
		var found []shard.RepairFinding
		found, at, done, err = l.scripts.Repair(bounded, l.scripts.Shard(n), l.fix, at, l.cfg.Step)
		end()
		if err != nil {
			return l.failed(ctx, fmt.Errorf("repair: slot %d: %w", n, err), n)
		}
		if l.fix {
			l.stats.step(found, done)
		}
		for _, f := range found {
			if !l.yield(finding(n, f), nil) {
				return false
			}
		}
	}
	return true
}

func (l look) begin(ctx context.Context, slot int) (context.Context, context.CancelFunc, error) {
	if l.step == nil {
		return ctx, func() {}, ctx.Err()
	}
	return l.step(ctx, slot)
}

// failed reports an error. The walk continues unless its context has ended.
func (l look) failed(ctx context.Context, err error, slots ...int) bool {
	if l.left != nil {
		l.left(slots...)
	}
	return l.yield(Finding{}, err) && ctx.Err() == nil && !errors.Is(err, errTurnLost)
}
