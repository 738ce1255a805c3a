package trigger

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx/internal/process"
)

const (
	// idleTime is the pause of a trigger after a read that returned nothing.
	idleTime = 50 * time.Millisecond
	// settleTimeout bounds an ack, a dead letter, and all of the last ones together.
	settleTimeout = 5 * time.Second
	// minDelay prevents spinning if full jitter chooses a tiny delay.
	minDelay = 10 * time.Millisecond
)

// Runtime runs one trigger.
type Runtime struct {
	cfg      Config
	started  atomic.Bool
	board    board
	counts   counts
	progress *progress
	driver   atomic.Pointer[Driver]
}

// New returns a Runtime. It does no I/O and does not validate the options. Run validates them, so that Health also shows errors.
// Use Config.Validate to check them earlier.
func New(cfg Config) *Runtime {
	r := &Runtime{cfg: cfg.withDefaults()}
	r.progress = newProgress(r.cfg.ProgressTimeout)
	r.board.health = Health{
		Function: cfg.Function, Transport: "redis." + string(r.cfg.Mode), State: Initializing, Since: time.Now(),
	}
	if cfg.Driver != nil {
		r.board.health.Transport = string(r.cfg.Mode)
	}
	return r
}

// Health returns the state of the trigger.
func (r *Runtime) Health() Health {
	h := r.board.report()
	h.Stalled = !h.State.Final() && r.progress.stalled()
	h.Ready = h.Ready && !h.Stalled
	return h
}

// Stats returns the counts.
func (r *Runtime) Stats() Stats {
	stats := r.counts.stats()
	stats.OldestUnacked = r.progress.oldest()
	if d := r.driver.Load(); d != nil {
		if counter, ok := (*d).(GapCounter); ok {
			stats.Gaps = counter.Gaps()
		}
	}
	return stats
}

// Run runs the trigger until ctx ends. It can be called once. If the trigger cannot start, Run returns one or more *OptionError
// at once, and the state is BuildFailed. After the start, it continues regardless of errors of the server.
//
// When ctx ends, the trigger receives nothing more. Functions in flight may continue for ShutdownTimeout, and then their contexts
// end. Run returns when they have returned. Entries without an ack stay pending.
func (r *Runtime) Run(ctx context.Context) error {
	if !r.started.CompareAndSwap(false, true) {
		return ErrStarted
	}
	log := r.cfg.logger()
	driver, err := r.build(ctx, log)
	switch {
	case err == nil:
		r.board.connected(true)
		r.board.show(Initializing, onBuilt, Receiving, true)
	case ctx.Err() != nil && !errors.Is(err, ErrOption):
		r.board.show(Initializing, onShutdown, Stopped, true)
		return nil
	default:
		r.board.failed(err)
		r.board.show(Initializing, onBuildFailed, BuildFailed, true)
		log.Error("trigger: start failed", "error", err)
		return err
	}
	log.Info("trigger: started")
	listed, unlist := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() {
		r.processes(driver).Keep(listed, process.Trigger, func() process.Report { return r.report(listed, driver) })
	})
	err = newRunning(r, driver, log).run(ctx)
	unlist()
	keeping.Wait()
	r.board.ended()
	log.Info("trigger: stopped")
	return errors.Join(err, driver.Close())
}

// build creates the driver and connects it.
func (r *Runtime) build(ctx context.Context, log *slog.Logger) (Driver, error) {
	if err := r.cfg.Validate(); err != nil {
		return nil, err
	}
	if driver := r.cfg.Driver; driver != nil {
		if err := driver.Reconnect(ctx); err != nil {
			return nil, errors.Join(&OptionError{Option: "Driver", Remedy: "see its error", Err: err}, driver.Close())
		}
		r.driver.Store(&driver)
		return driver, nil
	}
	driver, err := newDriver(r.cfg, log)
	if err != nil {
		return nil, err
	}
	if err := driver.Reconnect(ctx); err != nil {
		return nil, errors.Join(explain(err), driver.Close())
	}
	r.driver.Store(&driver)
	return driver, nil
}

func newDriver(cfg Config, log *slog.Logger) (Driver, error) {
	client, end, err := cfg.Connector.connect()
	if err != nil {
		return nil, err
	}
	link := link{client: client, end: end, cfg: cfg, log: log}
	switch {
	case cfg.Mode == ModePubSub:
		return newPubSub(link), nil
	case cfg.Group != "":
		return newGrouped(link), nil
	default:
		return &plain{link: link}, nil
	}
}

// running is a Runtime that has started.
type running struct {
	*Runtime
	driver Driver
	log    *slog.Logger
	life   context.Context // context of the functions
	stop   context.CancelFunc

	// turn is held by the place that receives for all.
	turn     chan struct{}
	failures int // consecutive failures to receive or connect; belongs to the place that has the turn
	refused  int // consecutive failures to receive; belongs to the place that has the turn
	// connection counts the connections of the driver.
	connection atomic.Int64
	owed       owed
	retries    retries
}

func newRunning(r *Runtime, driver Driver, log *slog.Logger) *running {
	return &running{Runtime: r, driver: driver, log: log, turn: make(chan struct{}, 1)}
}

// run runs the places until ctx ends. An error is an invalid transition, which the tests exclude.
func (r *running) run(ctx context.Context) error {
	r.life, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer r.stop()
	loop, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, r.cfg.Concurrency)
	var places sync.WaitGroup
	for range r.cfg.Concurrency {
		places.Go(func() {
			if err := (&place{running: r}).run(loop); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	ended := make(chan struct{})
	go func() { places.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-loop.Done():
		r.await(ended)
	}
	r.giveBackAll()
	r.payAll()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// await waits for the deliveries in flight, and then ends the context of their functions.
func (r *running) await(ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-time.After(r.cfg.ShutdownTimeout):
	}
	r.log.Warn("trigger: shutdown timeout exceeded", "in_flight", r.counts.inFlight.Load())
	r.stop()
	<-ended
}

// settleContext returns a context for a write to the source that also works while the trigger stops.
func (r *running) settleContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.life), settleTimeout)
}
