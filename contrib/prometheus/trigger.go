package prometheus

import (
	"context"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/luatx/luatx/trigger"
)

// Trigger returns an Observer for trigger.Config.Observer that measures the runs of functions.
func (m *Metrics) Trigger() trigger.Observer {
	return trigger.Observer{Executed: func(_ context.Context, e trigger.Executed) {
		m.executed.WithLabelValues(e.Function, e.Transport, string(e.Result)).Observe(e.Duration.Seconds())
	}}
}

// WatchTrigger exports the counts of a trigger, its deliveries in flight, the age of its oldest unacknowledged entry, and whether
// it is ready. Triggers with the same function and transport share their metrics: counts are added, the oldest entry counts, and
// all of them must be ready.
func (m *Metrics) WatchTrigger(r *trigger.Runtime) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.triggers = append(m.triggers, r)
}

// triggerDescs describe the metrics of WatchTrigger.
type triggerDescs struct{ deliveries, inFlight, retrying, oldest, ready *prom.Desc }

func newTriggerDescs() triggerDescs {
	desc := func(name, help string, more ...string) *prom.Desc {
		return prom.NewDesc(name, help, append([]string{"function", "transport"}, more...), nil)
	}
	return triggerDescs{
		deliveries: desc("luatx_trigger_deliveries_total", "Results of deliveries, by what: delivered, failed, acked, ack_failed, dead_lettered, dropped.", "what"),
		inFlight:   desc("luatx_trigger_in_flight", "Deliveries in progress, or whose ack is not written yet."),
		retrying:   desc("luatx_trigger_retrying", "Failed entries that wait for a retry."),
		oldest:     desc("luatx_trigger_oldest_unacked_seconds", "Age of the oldest delivery that is not acknowledged; 0 if there is none."),
		ready:      desc("luatx_trigger_ready", "1 if the trigger is connected and makes progress."),
	}
}

func (d triggerDescs) all() []*prom.Desc {
	return []*prom.Desc{d.deliveries, d.inFlight, d.retrying, d.oldest, d.ready}
}

// triggerSum is the sum of all triggers with one function and transport.
type triggerSum struct {
	deliveries         map[string]int64
	inFlight, retrying int64
	oldest             float64
	ready              bool
}

func (m *Metrics) sumTriggers() map[[2]string]*triggerSum {
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := make(map[[2]string]*triggerSum)
	for _, r := range m.triggers {
		h, s := r.Health(), r.Stats()
		sum := sums[[2]string{h.Function, h.Transport}]
		if sum == nil {
			sum = &triggerSum{deliveries: make(map[string]int64), ready: true}
			sums[[2]string{h.Function, h.Transport}] = sum
		}
		for what, n := range map[string]int64{
			"delivered": s.Delivered, "failed": s.Failed, "acked": s.Acked, "ack_failed": s.AckFailed,
			"dead_lettered": s.DeadLettered, "dropped": s.Dropped,
		} {
			sum.deliveries[what] += n
		}
		sum.inFlight += s.InFlight
		sum.retrying += s.Retrying
		sum.oldest = max(sum.oldest, s.OldestUnacked.Seconds())
		sum.ready = sum.ready && h.Ready
	}
	return sums
}

func (m *Metrics) collectTriggers(ch chan<- prom.Metric) {
	for names, sum := range m.sumTriggers() {
		for what, n := range sum.deliveries {
			ch <- prom.MustNewConstMetric(m.watched.deliveries, prom.CounterValue, float64(n), names[0], names[1], what)
		}
		ready := 0.0
		if sum.ready {
			ready = 1
		}
		for desc, value := range map[*prom.Desc]float64{
			m.watched.inFlight: float64(sum.inFlight), m.watched.retrying: float64(sum.retrying),
			m.watched.oldest: sum.oldest, m.watched.ready: ready,
		} {
			ch <- prom.MustNewConstMetric(desc, prom.GaugeValue, value, names[0], names[1])
		}
	}
}
