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
	// idleTime is how long a trigger sleeps where nothing had come.
	idleTime = 50 * time.Millisecond
	// tellTimeout bounds an ack, a dead letter, and all of the last ones together.
	tellTimeout = 5 * time.Second
	// minDelay keeps a trigger from spinning where full jitter chose next to nothing.
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

// New makes a Runtime. It does no I/O and checks no option. Run checks them, so that errors also appear in Health.
// Config.Validate returns them before.
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

// Run runs the trigger until ctx ends, once. Where it cannot begin it returns one or several *OptionError at once, and the
// state is BuildFailed; once it has begun it goes on whatever the server does.
//
// When ctx ends nothing more is received, what is in flight may go on for ShutdownTimeout, then the contexts of the
// functions end too, and Run returns when they have returned. Entries that are not acked by then stay
// pending.
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
		log.Error("trigger: cannot begin", "error", err)
		return err
	}
	log.Info("trigger: receives")
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

// build makes the driver and connects it.
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

// running is a Runtime that receives.
type running struct {
	*Runtime
	driver Driver
	log    *slog.Logger
	life   context.Context // of the functions
	stop   context.CancelFunc

	// turn is taken by the place that receives for all.
	turn     chan struct{}
	failures int // of receiving and connecting, in a row; belongs to the holder of the turn
	refused  int // of receiving alone, whatever became of connecting
	// connection counts how often the driver was connected.
	connection atomic.Int64
	owed       owed
	retries    retries
}

func newRunning(r *Runtime, driver Driver, log *slog.Logger) *running {
	return &running{Runtime: r, driver: driver, log: log, turn: make(chan struct{}, 1)}
}

// run lets the places run until ctx ends. The error is one of the machine itself, which its tests rule out.
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

// await gives what is in flight its time, and then ends its context.
func (r *running) await(ended <-chan struct{}) {
	timer := time.NewTimer(r.cfg.ShutdownTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return
	case <-timer.C:
	}
	r.log.Warn("trigger: functions take longer than ShutdownTimeout, their contexts end", "in_flight", r.counts.inFlight.Load())
	r.stop()
	<-ended
}

// tell returns a context to tell the source something by, also when the trigger is to stop.
func (r *running) tell() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.life), tellTimeout)
}
