package prometheus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/luatx/luatx/admin"
)

// OutboxConfig configures an Outbox. Namespace is required.
type OutboxConfig struct {
	// Namespace is the Transactor's namespace, for the label.
	Namespace string
	// Streams are the keys of streams for whose groups the lag and the pending entries are exported. Defaults to none.
	Streams []string
	// Destination returns the label for a stream's key, which must be unique for each key. Defaults to the key.
	Destination func(stream string) string
	// MinInterval is how long collected values are reused for further scrapes. It limits the load on the server, regardless of
	// the number of scrapes. Defaults to 15 seconds. A negative value queries the server in each scrape.
	MinInterval time.Duration
	// Timeout bounds the queries of a scrape. Defaults to 5 seconds.
	Timeout time.Duration
	// MaxClasses is the maximum number of failure classes with a series, those with the most parked events. The others are
	// counted under "other". Defaults to 20.
	MaxClasses int
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

func (c OutboxConfig) withDefaults() OutboxConfig {
	c.MinInterval = cmp.Or(c.MinInterval, 15*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.MaxClasses = cmp.Or(c.MaxClasses, 20)
	if c.Destination == nil {
		c.Destination = func(key string) string { return key }
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c OutboxConfig) validate() error {
	switch {
	case c.Namespace == "":
		return errors.New("prometheus: OutboxConfig.Namespace is empty; use the Transactor's")
	case c.Timeout < 0:
		return fmt.Errorf("prometheus: OutboxConfig.Timeout is %v; use 0 for the default, or more", c.Timeout)
	case c.MaxClasses < 0:
		return fmt.Errorf("prometheus: OutboxConfig.MaxClasses is %d; use 0 for the default, or more", c.MaxClasses)
	}
	return nil
}

// Outbox exports the state of the shards of an Operator. It is a prometheus.Collector that queries the server when it is scraped.
// All processes export the same values, so one Outbox is enough. If there are several, use the maximum.
type Outbox struct {
	op  *admin.Operator
	cfg OutboxConfig

	up, seconds, events, bytes, oldest, unpublished, blocked, blockedKeys, parked, totals, lag, pending, dead, oldestDead, processes, triggerLag, timers, overdue *prom.Desc

	mu     sync.Mutex
	looked time.Time
	last   []prom.Metric
}

// NewOutbox returns an Outbox. It does no I/O.
func NewOutbox(op *admin.Operator, cfg OutboxConfig) (*Outbox, error) {
	if op == nil {
		return nil, errors.New("prometheus: NewOutbox needs an Operator")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	desc := func(name, help string, labels ...string) *prom.Desc {
		return prom.NewDesc(name, help, labels, prom.Labels{"namespace": cfg.Namespace})
	}
	return &Outbox{
		op: op, cfg: cfg,
		up:      desc("luatx_outbox_up", "1 if the last read of the shards succeeded. The other metrics of the outbox are absent if it failed."),
		seconds: desc("luatx_outbox_look_seconds", "Duration of the last read of the shards."),
		events:  desc("luatx_outbox_events", "Events in the outbox, by state: pending (leased ones included), leased, waiting, parked, sent.", "state"),
		bytes:   desc("luatx_outbox_bytes", "Size of the bodies of pending and waiting events in bytes."),
		oldest:  desc("luatx_outbox_oldest_due_seconds", "Age of the longest-overdue event; 0 if none is due."),
		unpublished: desc("luatx_outbox_oldest_unpublished_seconds", "Age of the oldest event that should have been published: as luatx_outbox_oldest_due_seconds, "+
			"including events that wait behind a parked one, and events that relays retry."),
		blocked:     desc("luatx_outbox_blocked_events", "Events that wait behind a parked one of their ordering key."),
		blockedKeys: desc("luatx_outbox_blocked_keys", "Ordering keys whose events wait behind a parked one."),
		parked:      desc("luatx_outbox_parked", "Parked events, by the class of their failure.", "class"),
		totals: desc("luatx_outbox_changes_total", "Counts of the shards since they were created, by what: enqueued, duplicate, sent, failed, parked, "+
			"orphans, discarded, imported, replayed, erased.", "what"),
		lag:     desc("luatx_stream_lag", "Entries that a group has not read yet; -1 if the number is unknown.", "stream", "group"),
		pending: desc("luatx_stream_pending", "Entries that were delivered to a group and not acknowledged.", "stream", "group"),
		dead:    desc("luatx_stream_dead_letters", "Entries in the default dead-letter stream.", "stream"),
		oldestDead: desc("luatx_stream_oldest_dead_letter_seconds", "Age of the oldest entry in the default dead-letter stream; 0 if there is none.",
			"stream"),
		processes: desc("luatx_processes", "Registered processes, by kind (relay, consumer, trigger, timers, repair) and state: alive, or dead within the last hour.",
			"kind", "state"),
		timers:     desc("luatx_timers", "Timers of package expiry, by state: open (including due ones), due, decided (until they are forgotten).", "state"),
		overdue:    desc("luatx_timers_overdue_seconds", "Age of the longest-overdue timer; 0 if none is due."),
		triggerLag: desc("luatx_trigger_lag", "Entries that were not delivered to a trigger yet, by its last report; -1 if the number is unknown.", "function"),
	}, nil
}

// Describe implements prometheus.Collector.
func (o *Outbox) Describe(ch chan<- *prom.Desc) {
	for _, d := range []*prom.Desc{o.up, o.seconds, o.events, o.bytes, o.oldest, o.unpublished, o.blocked, o.blockedKeys, o.parked, o.totals, o.lag, o.pending, o.dead, o.oldestDead, o.processes, o.triggerLag, o.timers, o.overdue} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Concurrent scrapes share one query.
func (o *Outbox) Collect(ch chan<- prom.Metric) {
	o.mu.Lock()
	if o.looked.IsZero() || time.Since(o.looked) >= o.cfg.MinInterval {
		o.last = o.look()
		o.looked = time.Now()
	}
	last := o.last
	o.mu.Unlock()
	for _, metric := range last {
		ch <- metric
	}
}

func (o *Outbox) look() []prom.Metric {
	ctx, cancel := context.WithTimeout(context.Background(), o.cfg.Timeout)
	defer cancel()
	var all []prom.Metric
	gauge := func(d *prom.Desc, value float64, labels ...string) {
		for i, text := range labels {
			labels[i] = label(text)
		}
		all = append(all, prom.MustNewConstMetric(d, prom.GaugeValue, value, labels...))
	}
	began := time.Now()
	stats, err := o.op.Stats(ctx)
	if err == nil {
		o.collectOutbox(gauge, stats)
		for what, n := range totals(stats) {
			all = append(all, prom.MustNewConstMetric(o.totals, prom.CounterValue, float64(n), what))
		}
		err = errors.Join(o.collectStreams(ctx, gauge, stats.At), o.collectProcesses(ctx, gauge), o.collectTimers(ctx, gauge))
	}
	if err != nil {
		o.cfg.Logger.Warn("prometheus: outbox read failed", "namespace", o.cfg.Namespace, "error", err)
		all = nil
		gauge(o.up, 0)
		return all
	}
	gauge(o.up, 1)
	gauge(o.seconds, time.Since(began).Seconds())
	return all
}

func (o *Outbox) collectOutbox(gauge func(*prom.Desc, float64, ...string), stats admin.Stats) {
	for state, n := range map[string]int64{
		"pending": stats.Counts.Pending, "leased": stats.Counts.Leased, "waiting": stats.Counts.Waiting,
		"parked": stats.Counts.Parked, "sent": stats.Counts.Sent,
	} {
		gauge(o.events, float64(n), state)
	}
	gauge(o.bytes, float64(stats.Counts.Bytes))
	gauge(o.oldest, stats.Oldest.Seconds())
	gauge(o.unpublished, stats.OldestUnpublished.Seconds())
	gauge(o.blocked, float64(stats.Blocked.Events))
	gauge(o.blockedKeys, float64(stats.Blocked.Keys))
	rest := int64(0)
	for i, reason := range stats.Top(len(stats.Parked.ByClass)) {
		if i < o.cfg.MaxClasses && reason.Class != other {
			gauge(o.parked, float64(reason.Events), reason.Class)
		} else {
			rest += reason.Events
		}
	}
	if rest > 0 {
		gauge(o.parked, float64(rest), other)
	}
}

func totals(stats admin.Stats) map[string]int64 {
	t := stats.Counts.Totals
	return map[string]int64{
		"enqueued": t.Enqueued, "duplicate": t.Duplicate, "sent": t.Sent, "failed": t.Failed, "parked": t.Parked,
		"orphans": t.Orphans, "discarded": t.Discarded, "imported": t.Imported, "replayed": t.Replayed, "erased": t.Erased,
	}
}

func (o *Outbox) collectStreams(ctx context.Context, gauge func(*prom.Desc, float64, ...string), now time.Time) error {
	for s, err := range o.op.Streams(ctx, o.cfg.Streams...) {
		if err != nil {
			return err
		}
		name := o.cfg.Destination(s.Key)
		gauge(o.dead, float64(s.DeadLetters), name)
		age := 0.0
		if !s.OldestDeadLetter.IsZero() {
			age = max(0, now.Sub(s.OldestDeadLetter).Seconds())
		}
		gauge(o.oldestDead, age, name)
		for _, g := range s.Groups {
			gauge(o.lag, float64(g.Lag), name, g.Name)
			gauge(o.pending, float64(g.Pending), name, g.Name)
		}
	}
	return nil
}

// collectProcesses collects the numbers of live and dead processes of each kind, including zeros, and the lag of each trigger function.
func (o *Outbox) collectProcesses(ctx context.Context, gauge func(*prom.Desc, float64, ...string)) error {
	alive, dead, lags := map[string]int{}, map[string]int{}, map[string]int64{}
	for p, err := range o.op.Processes(ctx) {
		switch {
		case err != nil:
			return err
		case p.Dead:
			dead[p.Kind]++
		default:
			alive[p.Kind]++
			if t := p.Trigger; t != nil {
				lag, known := lags[t.Function]
				if lags[t.Function] = max(lag, t.Lag); !known {
					lags[t.Function] = t.Lag
				}
			}
		}
	}
	for _, kind := range admin.ProcessKinds() {
		gauge(o.processes, float64(alive[kind]), kind, "alive")
		gauge(o.processes, float64(dead[kind]), kind, "dead")
	}
	for function, lag := range lags {
		gauge(o.triggerLag, float64(lag), function)
	}
	return nil
}

func (o *Outbox) collectTimers(ctx context.Context, gauge func(*prom.Desc, float64, ...string)) error {
	stats, err := o.op.TimerStats(ctx)
	if err != nil {
		return err
	}
	for state, n := range map[string]int64{"open": stats.Open, "due": stats.Due, "decided": stats.Decided} {
		gauge(o.timers, float64(n), state)
	}
	gauge(o.overdue, stats.Overdue.Seconds())
	return nil
}
