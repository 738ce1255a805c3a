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
	// PollInterval is how often the table is polled without a wake-up. Defaults to 500 ms.
	PollInterval time.Duration
	// BatchSize is the maximum number of rows in a claim; at most twice as many are held. Defaults to 100; at most 1000.
	BatchSize int
	// Lease is how long a row stays with a process that has died. While the process lives and the database responds, the process
	// keeps a row until it is settled. Defaults to 30 seconds; at least 100 ms.
	Lease time.Duration
	// Attempts is how often an event is tried before it is parked. Defaults to 10.
	Attempts int
	// BackoffBase and BackoffCap bound the pause after a failed attempt, with exponential backoff and full jitter. They default
	// to 1 second and 5 minutes.
	BackoffBase, BackoffCap time.Duration
	// SkipParked lets an ordering key continue behind a parked event, which is published after the later ones when it is
	// re-armed. By default, they wait for it.
	SkipParked bool
	// DrainTimeout is how long Source waits, after the context has ended, for events that it has handed out. Defaults to 5 s.
	DrainTimeout time.Duration
	// Listen calls wake for each notification on the channel until the context or the connection ends. It is called again after
	// it has returned. contrib/pgx provides one. Defaults to polling only.
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
		return errors.New("outbox: OutboxPublisherConfig.DB is nil; set the database")
	case min(c.BatchSize, c.Attempts) < 0 || min(c.PollInterval, c.BackoffBase, c.DrainTimeout) < 0:
		return errors.New("outbox: OutboxPublisherConfig.BatchSize, Attempts, PollInterval, BackoffBase or DrainTimeout is negative; use 0 for the default, or more")
	case c.BatchSize > maxBatch:
		return fmt.Errorf("outbox: OutboxPublisherConfig.BatchSize is %d; use at most %d", c.BatchSize, maxBatch)
	case c.Lease < minLease:
		return fmt.Errorf("outbox: OutboxPublisherConfig.Lease is %v; use at least %v", c.Lease, minLease)
	case c.BackoffCap < c.BackoffBase:
		return fmt.Errorf("outbox: OutboxPublisherConfig.BackoffCap is %v; use at least BackoffBase (%v)", c.BackoffCap, c.BackoffBase)
	}
	return nil
}

// OutboxPublisher hands out the committed events of an outbox. Any number of publishers, in any number of processes, can work on
// one table.
type OutboxPublisher struct {
	cfg     OutboxPublisherConfig
	err     error // the error of the config
	dialect Dialect
	table   table

	mu      sync.Mutex
	pumps   map[*pump]bool
	running sync.WaitGroup
}

// NewOutboxPublisher returns an OutboxPublisher. It does no I/O. If cfg is invalid, every method that returns an error returns
// that error.
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
	if p.dialect.OrderingKeys == "" {
		p.err = fmt.Errorf("outbox: OutboxPublisherConfig.Dialect: OrderingKeys of %s is empty; set it, as PostgreSQL and MySQL do", p.dialect.Name)
		return p
	}
	if p.table, err = p.dialect.table(p.cfg.Table); err != nil {
		p.err = fmt.Errorf("outbox: OutboxPublisherConfig.Table: %w", err)
	}
	return p
}

// Source returns a channel of committed events, which is closed when ctx ends. An ack marks an event published, also after ctx has
// ended. Acknowledged writes nothing, because its caller has already marked the event. After a nack, the event is handed out again
// after a backoff. It is parked at once after a permanent error, and when its attempts are used up. Release gives the event back
// without counting an attempt. A nack does the same if its error is from relay.Later or relay.Unavailable, or has a method Untried
// that returns true.
//
// Another goroutine writes the acks, in batches; Wait waits for them. If the process dies after an event was published and before
// its ack was written, the event is published again.
//
// A receiver that never settles an event keeps it, and the later events of its ordering key, as long as the process lives.
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

// Subscribe is Source under the name that message.Engine.AddSubscriber requires.
func (p *OutboxPublisher) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	return p.Source(ctx)
}

// Forwards returns true: an ack of an event means that it has been published. See message.Engine.AddSubscriber.
func (p *OutboxPublisher) Forwards() bool { return true }

// Wake makes every Source of this publisher poll the table now.
func (p *OutboxPublisher) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.pumps {
		s.wake()
	}
}

// Wait returns after every Source has ended: its context has ended, and all events that it handed out are settled and written, or
// DrainTimeout has passed. Close the database afterwards.
func (p *OutboxPublisher) Wait() { p.running.Wait() }

// listen waits for notifications. Polling continues, so a lost notification delays events by at most a PollInterval.
func (p *OutboxPublisher) listen(ctx context.Context, s *pump) {
	backoff := message.Backoff{Base: p.cfg.PollInterval, Max: 30 * time.Second}
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := p.cfg.Listen(ctx, p.table.channel(), s.wake)
		if ctx.Err() != nil {
			return
		}
		p.cfg.Logger.Warn("outbox: listener ended", "table", p.cfg.Table, "error", err)
		sleep.For(ctx, backoff.Ceiling(attempt))
	}
}
