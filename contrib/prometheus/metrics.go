package prometheus

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/trigger"
)

// Config configures Metrics. The zero value is usable.
type Config struct {
	// Destination returns the label for a stream's key. Defaults to the key without its {tag}, so that the partitions of a stream
	// share a label.
	Destination func(stream string) string
	// MaxLabels is the maximum number of values for each label of a class, a destination, a stream or a group. Later values
	// become "other". Defaults to 50.
	MaxLabels int
	// Buckets are the upper bounds of durations, in seconds. Defaults to 0.5 ms to 30 s.
	Buckets []float64
}

// Metrics counts and measures what a process does. Register it as a prometheus.Collector. It is safe for concurrent use.
type Metrics struct {
	cfg Config

	commits      *prom.HistogramVec
	attempts     *prom.CounterVec
	batches      *prom.HistogramVec
	emitted      *prom.CounterVec
	publishes    *prom.HistogramVec
	settled      *prom.CounterVec
	parked       *prom.CounterVec
	unavailable  *prom.GaugeVec
	outages      *prom.CounterVec
	abandoned    *prom.CounterVec
	stuck        *prom.GaugeVec
	handled      *prom.HistogramVec
	executed     *prom.HistogramVec
	entries      *prom.Desc
	watched      triggerDescs
	all          []prom.Collector
	classes      limited
	destinations limited
	streams      limited
	groups       limited
	downs        downs

	mu       sync.Mutex
	readers  map[[2]string]reader // by stream and group
	triggers []*trigger.Runtime
}

var defaultBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// New returns Metrics.
func New(cfg Config) (*Metrics, error) {
	if cfg.Destination == nil {
		cfg.Destination = slot.Without
	}
	cfg.MaxLabels = cmp.Or(cfg.MaxLabels, 50)
	if cfg.MaxLabels < 0 {
		return nil, errors.New("prometheus: Config.MaxLabels is negative; use 0 for the default, or more")
	}
	if len(cfg.Buckets) == 0 {
		cfg.Buckets = defaultBuckets
	}
	m := &Metrics{
		cfg: cfg, readers: make(map[[2]string]reader), downs: make(downs),
		classes: newLimited(cfg.MaxLabels), destinations: newLimited(cfg.MaxLabels),
		streams: newLimited(cfg.MaxLabels), groups: newLimited(cfg.MaxLabels),
		entries: prom.NewDesc("luatx_stream_entries_total", "Results of entries of a stream, by what: delivered, redelivered, "+
			"claimed, malformed, trimmed, ack_failed, dead_lettered.", []string{"stream", "group", "what"}, nil),
		watched: newTriggerDescs(),
	}
	m.commits = m.histogram("luatx_commit_duration_seconds", "Duration of commits, from the end of the handler until the outcome was known.",
		cfg.Buckets, "namespace", "outcome")
	m.batches = m.histogram("luatx_commit_batch_transactions", "Number of transactions in the script of a commit.",
		[]float64{1, 2, 4, 8, 16, 32, 64}, "namespace")
	m.attempts = m.counter("luatx_commit_attempts_total", "Round trips of commits.", "namespace")
	m.emitted = m.counter("luatx_commit_events_total", "Events that transactions have put into the outbox.", "namespace")
	m.publishes = m.histogram("luatx_relay_publish_duration_seconds", "Duration of a batch in the Publisher, by result: ok, failed.",
		cfg.Buckets, "namespace", "destination", "result")
	m.settled = m.counter("luatx_relay_events_total", "Results of events, by result: sent, failed, returned, parked, lost.", "namespace", "result")
	m.parked = m.counter("luatx_relay_parked_total", "Events that were parked, by the class of their failure.", "namespace", "class")
	m.outages = m.counter("luatx_relay_outages_total", "Number of times that a destination became unavailable.", "namespace", "destination")
	m.unavailable = m.gauge("luatx_relay_unavailable", "1 while a destination is unavailable.", "namespace", "destination")
	m.abandoned = m.counter("luatx_relay_abandoned_calls_total", "Calls of the Publisher that the relay abandoned because they did not return.",
		"namespace", "destination")
	m.stuck = m.gauge("luatx_relay_stuck_calls", "Abandoned calls of the Publisher that have not returned.", "namespace", "destination")
	m.handled = m.histogram("luatx_stream_message_duration_seconds", "Time from the delivery of messages until their settlement,  "+
		"by result: acked, nacked, released.", cfg.Buckets, "stream", "group", "result")
	m.executed = m.histogram("luatx_trigger_execution_duration_seconds", "Duration of the functions of triggers, by result: succeeded, failed, "+
		"refused, dropped, released.", cfg.Buckets, "function", "transport", "result")
	return m, nil
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prom.HistogramVec {
	v := prom.NewHistogramVec(prom.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.all = append(m.all, v)
	return v
}

func (m *Metrics) counter(name, help string, labels ...string) *prom.CounterVec {
	v := prom.NewCounterVec(prom.CounterOpts{Name: name, Help: help}, labels)
	m.all = append(m.all, v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prom.GaugeVec {
	v := prom.NewGaugeVec(prom.GaugeOpts{Name: name, Help: help}, labels)
	m.all = append(m.all, v)
	return v
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prom.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
	ch <- m.entries
	for _, desc := range m.watched.all() {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prom.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
	m.collectReaders(ch)
	m.collectTriggers(ch)
}

// other replaces the values of a label beyond the maximum.
const other = "other"

// limited passes the first values of a label and replaces the others.
type limited struct {
	mu   *sync.Mutex
	most int
	seen map[string]bool
}

func newLimited(most int) limited { return limited{new(sync.Mutex), most, make(map[string]bool)} }

func (l limited) value(v string) string {
	v = label(v)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen[v] {
		if len(l.seen) >= l.most {
			return other
		}
		l.seen[v] = true
	}
	return v
}

// label returns a text as the value of a label, which must be UTF-8. The names of streams and groups may have any bytes.
func label(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.Trim(strconv.QuoteToASCII(text), `"`)
}
