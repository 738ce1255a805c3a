package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
)

// Config configures a Relay. Its zero value works.
type Config struct {
	// NoInline disables inline publishing, so that events which this process commits are published by claims.
	NoInline bool
	// InlineSlots is the number of transactions whose events may wait for inline publishing. Relays claim the events of
	// further transactions. Defaults to 256.
	InlineSlots int
	// Concurrency is the number of batches that are published at a time, inline and by claims each. If the Publisher is
	// Scoped, slow batches do not count after a short wait, but at most eight times Concurrency batches of one scope are in
	// flight. Defaults to 4.
	Concurrency int
	// BatchSize is the maximum number of events of a batch. Defaults to 100; at most 1000.
	BatchSize int
	// Lease is how long a claim reserves an event for its relay. Defaults to 30 seconds; at least 100 ms and at
	// most 24 hours.
	Lease time.Duration
	// PublishTimeout bounds one call of the Publisher. Its context ends then, or when two thirds of the events' lease are
	// over. The relay abandons a call that has not returned half a second later, or earlier if Lease or DrainTimeout is short.
	// Defaults to two thirds of Lease; at least 1 ms, and at most the default.
	PublishTimeout time.Duration
	// SweepInterval is the time in which the sweep visits every shard, to find the events of processes that crashed. All
	// relays share one sweep, with the shortest of their intervals. When a relay crashes, its events are recovered within
	// Lease and SweepInterval. Defaults to 1 second for up to 256 partitions, and to 1 minute for more.
	SweepInterval time.Duration
	// NoWakeUps disables the subscription that notifies the relay at once of commits by processes without a relay. The sweep
	// finds their events then. Defaults to false.
	NoWakeUps bool
	// Attempts is the number of attempts after which an event is parked. Defaults to 10.
	Attempts int
	// BackoffBase and BackoffCap bound the pause after a failed attempt. The pause grows exponentially, with full jitter. They
	// default to 1 second and 5 minutes.
	BackoffBase, BackoffCap time.Duration
	// PauseCap is the longest pause while a destination is unavailable, and the pause of an event whose large body cannot be
	// read. Defaults to 5 seconds.
	PauseCap time.Duration
	// OnPark decides about the events behind a parked event of the same ordering key. All relays of a namespace must use the
	// same value. Defaults to LaneBlocks.
	OnPark OnPark
	// Barrier delays the publishing of events until replicas have their commits. Defaults to no barrier.
	Barrier Barrier
	// SentRetention is how long the outbox remembers the ids of sent events whose ids were given, so that the same event is a
	// duplicate. Derived ids are not remembered, because the inbox recognizes their message. Defaults to 1 hour; if negative,
	// the outbox remembers no ids.
	SentRetention time.Duration
	// KeepSentBodies keeps the ids and bodies of all sent events for SentRetention, so that operators can replay them. A
	// replayed event must reach its stream again, so Streams adds an event each time that it is published. Defaults to false.
	KeepSentBodies bool
	// DrainTimeout is the longest time that Run takes to return after its context ends, but never less than 1 second. The
	// contexts of calls in flight end earlier, by a quarter of DrainTimeout, but no more than 1 second. Defaults to 5 seconds.
	DrainTimeout time.Duration
	// Observer is notified of what the relay does. Defaults to none.
	Observer Observer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// OnPark is the treatment of the events behind a parked event of the same ordering key.
type OnPark int

// The values of OnPark.
const (
	// LaneBlocks makes them wait until an operator re-arms or discards the parked event. The order is kept.
	LaneBlocks OnPark = iota
	// LaneContinues publishes them. If the parked event is re-armed, it is published out of order.
	LaneContinues
)

const (
	manyShards   = 256
	settleTries  = 15 * time.Second
	firstPause   = 50 * time.Millisecond
	idleInterval = time.Hour
	perScope     = 8
	leastDrain   = time.Second // to give events back, even if DrainTimeout is shorter
)

func (c Config) withDefaults(shards int) Config {
	c.InlineSlots = cmp.Or(c.InlineSlots, 256)
	c.Concurrency = cmp.Or(c.Concurrency, 4)
	c.BatchSize = cmp.Or(c.BatchSize, 100)
	c.Attempts = cmp.Or(c.Attempts, 10)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.BackoffBase = cmp.Or(c.BackoffBase, time.Second)
	c.BackoffCap = cmp.Or(c.BackoffCap, 5*time.Minute)
	c.PauseCap = cmp.Or(c.PauseCap, 5*time.Second)
	c.SentRetention = cmp.Or(c.SentRetention, time.Hour)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 5*time.Second)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, c.forPublishing())
	interval := time.Second
	if shards > manyShards {
		interval = time.Minute
	}
	c.SweepInterval = cmp.Or(c.SweepInterval, interval)
	c.Barrier = c.Barrier.withDefaults(c.Lease)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// forPublishing returns how long after a claim its events may be published. The rest of the lease is for settling them.
func (c Config) forPublishing() time.Duration { return c.Lease * 2 / 3 }

func (c Config) validate() error {
	switch {
	case c.BatchSize < 1 || c.BatchSize > shard.MaxLimit:
		return fmt.Errorf("relay: Config.BatchSize is %d; use 1 to %d", c.BatchSize, shard.MaxLimit)
	case c.OnPark != LaneBlocks && c.OnPark != LaneContinues:
		return fmt.Errorf("relay: Config.OnPark is %d; use LaneBlocks or LaneContinues", c.OnPark)
	case c.Lease < shard.MinLease || c.Lease > shard.MaxLease:
		return fmt.Errorf("relay: Config.Lease is %v; use %v to %v", c.Lease, shard.MinLease, shard.MaxLease)
	case c.PublishTimeout < time.Millisecond || c.PublishTimeout > c.forPublishing():
		return fmt.Errorf("relay: Config.PublishTimeout is %v; use 1ms to two thirds of Lease, %v", c.PublishTimeout, c.forPublishing())
	case min(c.InlineSlots, c.Concurrency, c.Attempts) < 0:
		return errors.New("relay: Config.InlineSlots, Concurrency or Attempts is negative; use 0 for the default, or more")
	case min(c.SweepInterval, c.BackoffBase, c.PauseCap, c.DrainTimeout) < 0:
		return errors.New("relay: Config.SweepInterval, BackoffBase, PauseCap or DrainTimeout is negative; use 0 for the default, or more")
	case c.BackoffCap < c.BackoffBase:
		return fmt.Errorf("relay: Config.BackoffCap is %v; use at least BackoffBase, %v", c.BackoffCap, c.BackoffBase)
	}
	return c.Barrier.validate(c.Lease)
}

// A Relay publishes the events of a Transactor's shards. Any number of relays, in any number of processes, work side by
// side.
type Relay struct {
	inside    *link.Inside
	scripts   *shard.Scripts
	publisher Publisher
	cfg       Config
	shards    []int

	running  atomic.Bool
	stopping atomic.Bool  // relays of other processes are notified of events that are given back
	open     atomic.Bool  // accepts events for inline publishing
	waiting  atomic.Int64 // transactions that hold an inline slot
	inline   chan handover
	schedule *schedule
	outage   outages
	behind   sync.WaitGroup // batches without a waiting worker
	late     atomic.Int64   // number of batches in behind
	barrier  barrier
	pauses   pauses
	grace    time.Duration // see supervision
	inFlight atomic.Int64  // events in calls of the Publisher
	claims   claims
	counts   counts
	counter  history.Counter
}

// handover holds the events of one commit.
type handover struct {
	at     time.Time // when the commit was known
	slot   int
	events []shard.Event
}

// New returns a Relay that publishes the events of t through publisher while Run runs. It does no I/O. It returns an error
// if t or publisher is nil or cfg is invalid.
func New(t *luatx.Transactor, publisher Publisher, cfg Config) (*Relay, error) {
	if t == nil || publisher == nil {
		return nil, errors.New("relay: New needs a Transactor and a Publisher")
	}
	shards := t.Keyspace().Slots()
	cfg = cfg.withDefaults(len(shards))
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	inside := link.Of(t)
	if reads := inside.Runner.ReadTimeout(); cfg.Barrier.Replicas > 0 && reads > 0 && cfg.Barrier.Timeout >= reads {
		return nil, fmt.Errorf("relay: Config.Barrier.Timeout is %v, and the client gives up after its ReadTimeout, %v; use less, or a longer ReadTimeout", cfg.Barrier.Timeout, reads)
	}
	return &Relay{
		inside:    inside,
		scripts:   inside.Scripts,
		publisher: publisher,
		cfg:       cfg,
		shards:    shards,
		inline:    make(chan handover, cfg.InlineSlots),
		schedule:  newSchedule(),
		outage:    outages{log: cfg.Logger, notify: cfg.Observer.Outage, cap: cfg.PauseCap, most: perScope * cfg.Concurrency},
		grace:     graceOf(cfg.forPublishing(), reserveOf(cfg.DrainTimeout)),
		barrier:   barrier{Durability: cfg.Barrier.script(), log: cfg.Logger, cap: cfg.PauseCap},
	}, nil
}

// lifeKey is the context key of the context that ends when Run returns.
type lifeKey struct{}

// lifeOf returns the context that ends when the Run of ctx returns, and so outlives the Run's workers. It returns ctx if
// ctx does not belong to a Run.
func lifeOf(ctx context.Context) context.Context {
	if life, ok := ctx.Value(lifeKey{}).(context.Context); ok {
		return life
	}
	return ctx
}

// Run publishes events until ctx ends. Then it lets the calls in flight finish, gives back the events that it still holds,
// and returns nil, all within Config.DrainTimeout. If that time is too short, the remaining events wait until their lease
// ends.
//
// Run returns an error at once if it is running already, or if another relay of the same Transactor publishes inline.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("relay: Run is already running")
	}
	r.lookAtPauses(ctx)
	if !r.cfg.NoInline {
		r.open.Store(true)
		if err := r.inside.Attach(inlineRelay{r}); err != nil {
			r.open.Store(false)
			r.running.Store(false)
			return err
		}
		defer r.inside.Detach()
	}

	life, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	ctx = context.WithValue(ctx, lifeKey{}, life)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var workers sync.WaitGroup
	for range r.cfg.Concurrency {
		workers.Go(func() { r.publishInline(ctx, work) })
		workers.Go(func() { r.publishCold(ctx, work) })
	}
	workers.Go(func() { r.sweep(ctx) })
	workers.Go(func() { r.watchPauses(ctx) })
	workers.Go(func() { r.inside.Processes.Keep(ctx, process.Relay, r.report) })
	workers.Go(func() { r.inside.History.Keep(ctx, &r.counter) })
	if !r.cfg.NoWakeUps {
		workers.Go(func() { r.listen(ctx) })
	}

	<-ctx.Done()
	r.open.Store(false)
	r.stopping.Store(true)
	deadline := time.AfterFunc(r.cfg.DrainTimeout-reserveOf(r.cfg.DrainTimeout), stop)
	defer deadline.Stop()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		workers.Wait()
		r.behind.Wait()
		r.giveBack(life)
		r.inside.History.End(life, &r.counter)
		r.stopping.Store(false)
		r.running.Store(false)
	}()
	select {
	case <-drained:
	case <-time.After(max(r.cfg.DrainTimeout, leastDrain)):
		r.cfg.Logger.Error("relay: returning events timed out", "duration", r.cfg.DrainTimeout)
	}
	return nil
}
