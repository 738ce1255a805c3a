package sqltx

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
)

// OutboxPublisherConfig configures an OutboxPublisher.
type OutboxPublisherConfig struct {
	// DB is the database.
	DB *sql.DB
	// Table is the outbox's table. Defaults to "outbox".
	Table string
	// PollInterval is how often the table is looked at when nothing says that there is something. Defaults to 500 ms.
	PollInterval time.Duration
	// BatchSize is how many rows are claimed at once; no more than twice as many are held. Defaults to 100; at most 1000.
	BatchSize int
	// Lease is how long a row belongs to a process that has died. While the process lives and the database answers, a row
	// stays its own until it is settled. Defaults to 30 seconds; at least 100 ms.
	Lease time.Duration
	// Attempts is how often an event is tried before it is parked. Defaults to 10.
	Attempts int
	// BackoffBase and BackoffCap bound the pause after a failed attempt: exponential, with full jitter.
	// They default to 1 second and 5 minutes.
	BackoffBase, BackoffCap time.Duration
	// SkipParked lets the later events of an ordering key go on behind a parked one, which is published after them once it
	// is re-armed. By default they wait for it.
	SkipParked bool
	// DrainTimeout is how long, when the context has ended, Source waits for what it has handed out. Defaults to 5 s.
	DrainTimeout time.Duration
	// Listen calls wake for each notification of the channel until the context or the connection ends; it is called
	// again after it returned. contrib/pgx has one. Defaults to polling alone.
	Listen func(ctx context.Context, channel string, wake func()) error
	// Dialect defaults to that of the driver.
	Dialect Dialect
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

const (
	minLease = 100 * time.Millisecond
	maxBatch = 1000
)

func (c OutboxPublisherConfig) withDefaults() OutboxPublisherConfig {
	c.Table = cmp.Or(c.Table, DefaultOutboxTable)
	c.BatchSize = cmp.Or(c.BatchSize, 100)
	c.Attempts = cmp.Or(c.Attempts, 10)
	c.PollInterval = cmp.Or(c.PollInterval, 500*time.Millisecond)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.BackoffBase = cmp.Or(c.BackoffBase, time.Second)
	c.BackoffCap = cmp.Or(c.BackoffCap, 5*time.Minute)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c OutboxPublisherConfig) validate() error {
	switch {
	case c.DB == nil:
		return errors.New("outbox: OutboxPublisherConfig.DB is nil: give the database")
	case min(c.BatchSize, c.Attempts) < 0 || min(c.PollInterval, c.BackoffBase, c.DrainTimeout) < 0:
		return errors.New("outbox: OutboxPublisherConfig.BatchSize, Attempts, PollInterval, BackoffBase and DrainTimeout: use 0 for the default, or more")
	case c.BatchSize > maxBatch:
		return fmt.Errorf("outbox: OutboxPublisherConfig.BatchSize is %d: use at most %d", c.BatchSize, maxBatch)
	case c.Lease < minLease:
		return fmt.Errorf("outbox: OutboxPublisherConfig.Lease is %v: use at least %v", c.Lease, minLease)
	case c.BackoffCap < c.BackoffBase:
		return fmt.Errorf("outbox: OutboxPublisherConfig.BackoffCap is %v: use at least BackoffBase, %v", c.BackoffCap, c.BackoffBase)
	}
	return nil
}

// OutboxPublisher hands out the committed events of an outbox. Any number of them, in any number of processes, work on
// one table side by side.
type OutboxPublisher struct {
	cfg     OutboxPublisherConfig
	err     error // what is wrong with the config
	dialect Dialect
	table   table

	mu      sync.Mutex
	pumps   map[*pump]bool
	running sync.WaitGroup
}

// NewOutboxPublisher returns an OutboxPublisher. It does no I/O. What is wrong with the config is returned by every
// method that has an error.
func NewOutboxPublisher(cfg OutboxPublisherConfig) *OutboxPublisher {
	p := &OutboxPublisher{cfg: cfg.withDefaults(), pumps: map[*pump]bool{}}
	if p.err = p.cfg.validate(); p.err != nil {
		return p
	}
	var err error
	if p.dialect, err = dialectOr(cfg.Dialect, cfg.DB); err != nil {
		p.err = fmt.Errorf("outbox: OutboxPublisherConfig: %w", err)
		return p
	}
	if p.table, err = p.dialect.table(p.cfg.Table); err != nil {
		p.err = fmt.Errorf("outbox: OutboxPublisherConfig.Table: %w", err)
	}
	return p
}

// Source returns a channel of committed events, which is closed when ctx ends. An ack marks an event published, also
// after ctx has ended; so does a process that takes it for acknowledged. A nack has it handed out again after a
// backoff, or parks it: at once for a permanent error, and when its attempts are used up. Release gives it back, which
// costs no attempt; so does a nack whose error is made by relay.Later or relay.Unavailable, or has a method Untried that
// returns true.
//
// Acks are written by another goroutine, together with those that come at the same time; Wait waits for them. An event
// that was published and whose ack was not written before the process died is published again.
//
// Who holds an event and never settles it keeps it, and the later ones of its ordering key, for as long as he lives.
func (p *OutboxPublisher) Source(ctx context.Context) (<-chan *message.RawMessage, error) {
	if p.err != nil {
		return nil, p.err
	}
	s := newPump(p)
	p.mu.Lock()
	p.pumps[s] = true
	p.mu.Unlock()
	p.running.Go(func() {
		s.run(ctx)
		p.mu.Lock()
		delete(p.pumps, s)
		p.mu.Unlock()
	})
	if p.cfg.Listen != nil {
		p.running.Go(func() { p.listen(ctx, s) })
	}
	return s.out, nil
}

// Subscribe is Source under the name that message.Engine.AddSubscriber needs.
func (p *OutboxPublisher) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	return p.Source(ctx)
}

// Forwards returns true: an ack of an event says that it has been published. See message.Engine.AddSubscriber.
func (p *OutboxPublisher) Forwards() bool { return true }

// Wake makes every Source of this publisher look at the table now.
func (p *OutboxPublisher) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.pumps {
		s.wake()
	}
}

// Wait returns when all that Source has started has ended: after its context has, and what it has handed out is settled
// and written, or DrainTimeout is over. Close the database then.
func (p *OutboxPublisher) Wait() { p.running.Wait() }

// listen waits for notifications. Polling goes on beside it, so a lost one costs a PollInterval.
func (p *OutboxPublisher) listen(ctx context.Context, s *pump) {
	backoff := message.Backoff{Base: p.cfg.PollInterval, Max: 30 * time.Second}
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := p.cfg.Listen(ctx, p.table.channel(), s.wake)
		if ctx.Err() != nil {
			return
		}
		p.cfg.Logger.Warn("outbox: listening ended, polling alone until it works again", "table", p.cfg.Table, "error", err)
		sleep.For(ctx, backoff.Ceiling(attempt))
	}
}
