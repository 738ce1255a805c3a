package expiry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

// WorkerConfig configures a Worker. Event is required; every other field has a usable zero value.
type WorkerConfig struct {
	// Event returns the event of a due timer; the event's id is the result of Config.EventID. Event may run more than once for a
	// timer, and for a timer that turns out to be revoked. A nil message cancels the timer as it was found, because nothing can
	// expire. After an error, the timer stays open for the next sweep. Required.
	Event func(context.Context, Timer) (*message.Message, error)

	// SweepInterval is the interval at which every shard is checked. A timer is decided at most that long after it is due, plus
	// or minus a tenth. Defaults to 1 second for up to 256 partitions, otherwise to 1 minute.
	SweepInterval time.Duration

	// BatchSize is the maximum number of timers that one script decides. Defaults to 100; at most 1000.
	BatchSize int

	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

const (
	maxBatch   = 1000
	manyShards = 256
)

func (c WorkerConfig) withDefaults(shards int) WorkerConfig {
	if c.SweepInterval == 0 {
		c.SweepInterval = time.Second
		if shards > manyShards {
			c.SweepInterval = time.Minute
		}
	}
	c.BatchSize = cmp.Or(c.BatchSize, 100)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c WorkerConfig) validate() error {
	switch {
	case c.Event == nil:
		return errors.New("expiry: WorkerConfig.Event is nil; set a function that returns the event of a timer")
	case c.SweepInterval < 0:
		return fmt.Errorf("expiry: WorkerConfig.SweepInterval is %v; use 0 for the default, or more", c.SweepInterval)
	case c.BatchSize < 0 || c.BatchSize > maxBatch:
		return fmt.Errorf("expiry: WorkerConfig.BatchSize is %d; use 0 for the default, or up to %d", c.BatchSize, maxBatch)
	}
	return nil
}

// Counts holds the numbers of timers that a Worker has processed since it was created. A timer that stays open counts in each
// sweep.
type Counts struct {
	// Enqueued, Revoked, AlreadyEnqueued and NotDue count the decisions.
	Enqueued, Revoked, AlreadyEnqueued, NotDue int64
	// Full counts timers that were not decided because the outbox was full.
	Full int64
	// Cancelled counts timers for which WorkerConfig.Event returned no message.
	Cancelled int64
	// Failed counts timers without an event: WorkerConfig.Event returned an error or a message that is not a valid event, or the
	// outbox has another event with its id.
	Failed int64
}

// A Worker finds and decides due timers while Run is running.
type Worker struct {
	store   *Store
	cfg     WorkerConfig
	slots   []int
	running atomic.Bool
	asleep  map[int]rest // used by Run only

	enqueued, revoked, already, notDue, full, cancelled, failed atomic.Int64
}

// rest is a slot without due timers. If its first timer is still this one, nothing is due until then.
type rest struct{ first, until time.Time }

// NewWorker returns a Worker of a store. It does no I/O.
func NewWorker(store *Store, cfg WorkerConfig) (*Worker, error) {
	if store == nil {
		return nil, errors.New("expiry: NewWorker needs a Store")
	}
	slots := store.keyspace.Slots()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(len(slots))
	return &Worker{store: store, cfg: cfg, slots: slots, asleep: make(map[int]rest)}, nil
}

// Counts returns the numbers of timers that the worker has processed.
func (w *Worker) Counts() Counts {
	return Counts{
		Enqueued: w.enqueued.Load(), Revoked: w.revoked.Load(), AlreadyEnqueued: w.already.Load(), NotDue: w.notDue.Load(),
		Full: w.full.Load(), Cancelled: w.cancelled.Load(), Failed: w.failed.Load(),
	}
}

// report returns the state of the worker for operators.
func (w *Worker) report() process.Report {
	c := w.Counts()
	return process.Report{Counts: map[string]int64{
		"enqueued": c.Enqueued, "revoked": c.Revoked, "already_enqueued": c.AlreadyEnqueued, "full": c.Full, "cancelled": c.Cancelled, "failed": c.Failed,
	}}
}

// Run decides due timers until ctx ends, and then returns nil. It logs errors and retries in the next sweep; if the reply to a
// decision was lost, the next sweep finds the decision. Run returns an error if it is already running.
func (w *Worker) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("expiry: Run is already running")
	}
	defer w.running.Store(false)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	keeping.Go(func() { link.Of(w.store.transactor).Processes.Keep(ctx, process.Timers, w.report) })
	chunks := (len(w.slots) + shardsAtOnce - 1) / shardsAtOnce
	pause := w.cfg.SweepInterval / time.Duration(chunks)
	for i := rand.IntN(chunks); ; i = (i + 1) % chunks { // a random start keeps workers from sweeping at the same time
		w.sweep(ctx, w.slots[i*shardsAtOnce:min((i+1)*shardsAtOnce, len(w.slots))])
		if !sleep.For(ctx, jittered(pause)) {
			return nil
		}
	}
}

// jittered returns d plus or minus up to a tenth.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// sweep visits those of the slots in which a timer may be due.
func (w *Worker) sweep(ctx context.Context, slots []int) {
	first, err := w.store.scripts.FirstTimers(ctx, slots)
	if err != nil && ctx.Err() == nil {
		w.cfg.Logger.Warn("expiry: sweep failed", "error", err)
	}
	for _, slot := range slots {
		head, some := first[slot]
		if !some {
			delete(w.asleep, slot)
			continue
		}
		if known, ok := w.asleep[slot]; ok && known.first.Equal(head) && time.Now().Before(known.until) {
			continue
		}
		next, err := w.visit(ctx, slot)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.cfg.Logger.Error("expiry: decisions failed", "slot", slot, "error", err)
		}
		if err == nil && next > 0 {
			w.asleep[slot] = rest{head, time.Now().Add(next)}
		} else {
			delete(w.asleep, slot)
		}
	}
}

// visit decides the due timers of a slot, and returns the time until the next one is due, or 0 if some stay open.
func (w *Worker) visit(ctx context.Context, slot int) (time.Duration, error) {
	left, failed := 0, error(nil) // timers that stay open are skipped, so that they do not block others
	for {
		found, next, err := w.store.due(ctx, slot, left, w.cfg.BatchSize)
		switch {
		case err != nil:
			return 0, errors.Join(failed, err)
		case len(found) == 0 && left == 0:
			return next, nil
		case len(found) == 0:
			return 0, failed
		}
		batch, cancelled, err := w.batch(ctx, slot, found)
		if failed == nil {
			failed = err
		}
		stay, refused, err := w.decide(ctx, slot, batch)
		if failed == nil {
			failed = refused
		}
		if err != nil {
			return 0, errors.Join(failed, err)
		}
		left += stay + len(found) - len(batch) - cancelled
	}
}

// batch creates the events of timers, and cancels timers without one. It returns the first error.
func (w *Worker) batch(ctx context.Context, slot int, found []Timer) (batch []shard.Expiring, cancelled int, failed error) {
	for _, timer := range found {
		expiring, needed, err := w.event(ctx, slot, timer)
		switch {
		case err != nil:
			w.failed.Add(1)
			if failed == nil {
				failed = fmt.Errorf("event of the timer of %q: %w", timer.Subject, err)
			}
		case needed:
			batch = append(batch, expiring)
		default:
			cancelled++
		}
	}
	return batch, cancelled, failed
}

// event creates the event of a timer. It returns false if the timer needs none, because it was cancelled or moved.
func (w *Worker) event(ctx context.Context, slot int, timer Timer) (shard.Expiring, bool, error) {
	msg, err := w.cfg.Event(ctx, timer)
	if err != nil {
		return shard.Expiring{}, false, err
	}
	if msg != nil {
		expiring, err := w.store.prepare(w.store.scripts.Shard(slot), timer, msg)
		return expiring, true, err
	}
	cancelled, err := w.store.cancel(ctx, timer)
	if cancelled {
		w.cancelled.Add(1)
	}
	return shard.Expiring{}, false, err
}

// decide decides a batch. It returns how many of its timers may still be open, the first error of a single timer, and the error
// that ends the visit, such as a full outbox.
func (w *Worker) decide(ctx context.Context, slot int, batch []shard.Expiring) (stay int, refused, err error) {
	if len(batch) == 0 {
		return 0, nil, nil
	}
	done, err := w.store.decide(ctx, w.store.scripts.Shard(slot), batch, time.Time{})
	if err != nil {
		return 0, nil, err
	}
	counters := map[Decision]*atomic.Int64{
		Enqueued: &w.enqueued, Revoked: &w.revoked, AlreadyEnqueued: &w.already, NotDue: &w.notDue, full: &w.full, other: &w.failed,
	}
	for i, decision := range done {
		counters[decision].Add(1)
		switch decision {
		case NotDue:
			stay++
		case full:
			err = luatx.ErrOutboxFull
		case other:
			stay++
			if refused == nil {
				refused = fmt.Errorf("timer of %q: %w", batch[i].Subject, otherError(batch[i].Event.ID))
			}
		}
	}
	return stay, refused, err
}
