package prometheus

import (
	"context"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// Transactor returns an Observer for luatx.Config.Observer that measures the commits of a namespace. It exports the outcomes that alerts
// watch at 0, because Prometheus sees no increase in the first value of a series.
func (m *Metrics) Transactor(namespace string) luatx.Observer {
	for _, outcome := range []string{"broken", "full"} {
		m.commits.WithLabelValues(namespace, outcome)
	}
	return luatx.Observer{Committed: func(_ context.Context, c luatx.Commit) {
		m.commits.WithLabelValues(namespace, c.Outcome()).Observe(c.Duration.Seconds())
		m.attempts.WithLabelValues(namespace).Add(float64(c.Attempts))
		if c.Batch > 0 {
			m.batches.WithLabelValues(namespace).Observe(float64(c.Batch))
		}
		if c.Result.Outcome == luatx.Committed {
			m.emitted.WithLabelValues(namespace).Add(float64(c.Events))
		}
	}}
}

// Relay returns an Observer for relay.Config.Observer that measures the relay of a namespace.
func (m *Metrics) Relay(namespace string) relay.Observer {
	return relay.Observer{
		Published: func(_ context.Context, p relay.Published) {
			result := "ok"
			if p.Failed > 0 {
				result = "failed"
			}
			m.publishes.WithLabelValues(namespace, m.destinations.value(p.Destination), result).Observe(p.Duration.Seconds())
		},
		Settled: func(_ context.Context, s relay.Settled) {
			for _, one := range [...]struct {
				result string
				n      int
			}{{"sent", s.Sent}, {"failed", s.Failed}, {"returned", s.Returned}, {"parked", len(s.Parked)}, {"lost", s.Lost}} {
				m.settled.WithLabelValues(namespace, one.result).Add(float64(one.n))
			}
			for _, p := range s.Parked {
				m.parked.WithLabelValues(namespace, m.classes.value(p.Class)).Inc()
			}
		},
		Outage: func(_ context.Context, o relay.Outage) { m.outage(namespace, o) },
		Stuck: func(_ context.Context, s relay.Stuck) {
			destination := m.destinations.value(s.Destination)
			if s.Returned {
				m.stuck.WithLabelValues(namespace, destination).Dec()
				return
			}
			m.abandoned.WithLabelValues(namespace, destination).Inc()
			m.stuck.WithLabelValues(namespace, destination).Inc()
		},
	}
}

// downs holds when the latest beginning or end of a destination's outage was reported.
type downs map[[2]string]time.Time

// outage records the beginning or the end of an outage, unless a later one was reported before.
func (m *Metrics) outage(namespace string, o relay.Outage) {
	destination := m.destinations.value(o.Destination)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !o.Over {
		m.outages.WithLabelValues(namespace, destination).Inc()
	}
	last := m.downs[[2]string{namespace, destination}]
	if !o.At.After(last) {
		return
	}
	m.downs[[2]string{namespace, destination}] = o.At
	down := 1.0
	if o.Over {
		down = 0
	}
	m.unavailable.WithLabelValues(namespace, destination).Set(down)
}

// Subscriber returns an Observer for stream.SubscriberConfig.Observer that measures the handling of messages.
func (m *Metrics) Subscriber() stream.Observer {
	return stream.Observer{Settled: func(_ context.Context, s stream.Settled) {
		result := "acked"
		switch {
		case s.Released:
			result = "released"
		case s.Err != nil:
			result = "nacked"
		}
		m.handled.WithLabelValues(m.streams.value(m.cfg.Destination(s.Source.Stream)), m.groups.value(s.Source.Group), result).
			Observe(s.Duration.Seconds())
	}}
}

// reader returns the counts of a subscriber.
type reader func() stream.SubscriberStats

// Count exports the counts of a Subscriber as luatx_stream_entries_total. Pass its Stats or, for a PartitionedSubscriber, a
// function that returns its Stats().SubscriberStats. A later call with the same names replaces stats.
func (m *Metrics) Count(streamName, group string, stats func() stream.SubscriberStats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readers[[2]string{streamName, group}] = stats
}

func (m *Metrics) collectReaders(ch chan<- prom.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for names, stats := range m.readers {
		s := stats()
		for _, one := range [...]struct {
			what string
			n    int64
		}{
			{"delivered", s.Delivered},
			{"redelivered", s.Redelivered},
			{"claimed", s.Claimed},
			{"malformed", s.Malformed},
			{"trimmed", s.Trimmed},
			{"ack_failed", s.AckFailed},
			{"dead_lettered", s.DeadLettered},
		} {
			ch <- prom.MustNewConstMetric(m.entries, prom.CounterValue, float64(one.n), label(names[0]), label(names[1]), one.what)
		}
	}
}
