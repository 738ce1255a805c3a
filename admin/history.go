package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/history"
)

// HistoryRange is a part of the history. Its zero value is the last hour.
type HistoryRange struct {
	// Since and Until are times of the server's clock. Until defaults to now, and Since to an hour before Until. Intervals older
	// than 30 days are forgotten.
	Since, Until time.Time
	// Step is the length of the intervals. It is rounded up to a multiple of 10 seconds if Since lies in the last hour, or else of
	// 15 minutes, which are its defaults.
	Step time.Duration
}

// History holds the rates and measurements of a namespace, in all of its keyspaces.
type History struct {
	Since time.Time     `json:"since"`
	Until time.Time     `json:"until"`
	Step  time.Duration `json:"step_ns"`
	// Intervals are those in which anything was recorded, oldest first. If one is missing, no relay, no repair worker and no console
	// was running.
	Intervals []HistoryInterval `json:"intervals"`
	// Total sums up the counts of all intervals. It has the highest measurements.
	Total HistoryInterval `json:"total"`
}

// HistoryInterval is an interval of a History.
type HistoryInterval struct {
	// At is its begin, and Duration the time that it covers: less than the step if it is not over.
	At       time.Time     `json:"at"`
	Duration time.Duration `json:"duration_ns"`
	// Outcomes are those of all events.
	Outcomes Outcomes `json:"outcomes"`
	// Destinations are those with the most events. An event without a destination counts for its scope (relay.Scoped), or for "".
	// The interval names as many as fit into 650 bytes, at least 6 and at most 17 in each 15 minutes, and a name of more than 60 bytes
	// ends with a digest. Others sums up the rest.
	Destinations map[string]Outcomes `json:"destinations"`
	Others       Outcomes            `json:"others"`
	// Classes counts failures by class, and OtherFailures those of further classes. An event that was returned because its destination is
	// unavailable counts as a failure if the error has a class.
	Classes       map[string]int64 `json:"classes"`
	OtherFailures int64            `json:"other_failures"`
	// Measured is nil if no process measured the outbox.
	Measured *Measured `json:"measured,omitempty"`
}

// Outcomes counts events by outcome.
type Outcomes struct {
	// Sent events were published. Failed ones are tried again, Returned ones too, without having used up an attempt, and Parked ones
	// wait for an operator.
	Sent     int64 `json:"sent"`
	Failed   int64 `json:"failed"`
	Returned int64 `json:"returned"`
	Parked   int64 `json:"parked"`
}

// Measured are the highest measurements of an outbox in an interval.
type Measured struct {
	// Oldest is Stats.OldestUnpublished.
	Oldest time.Duration `json:"oldest_unpublished_ns"`
	// Events is the number of pending and waiting events, Bytes the size of their bodies, Parked the number of parked events, and
	// Blocked that of the events that wait behind them.
	Events  int64 `json:"events"`
	Bytes   int64 `json:"bytes"`
	Parked  int64 `json:"parked"`
	Blocked int64 `json:"blocked"`
	// Full is how full the fullest shard is, in percent of its capacity.
	Full int64 `json:"full_percent"`
	// Enqueued is the number of events per second that came in since the interval before. It is 0 if none has been measured before.
	Enqueued float64 `json:"enqueued_per_second"`
}

// HistoryKept is the time for which the history is kept.
const HistoryKept = 30 * 24 * time.Hour

// historyLag is how long counts may take to arrive in the history.
const historyLag = 10 * time.Second

// History returns a part of the history of the namespace, which relays write unless Config.NoHistory is set. It has the last hour at 10
// seconds, and 30 days at 15 minutes. The last 10 seconds are missing at the finer resolution, because relays write every 10 seconds.
func (o *Operator) History(ctx context.Context, r HistoryRange) (History, error) {
	now, err := o.core.History.Now(ctx)
	if err != nil {
		return History{}, fmt.Errorf("admin: history: %w", err)
	}
	resolution, h, err := r.resolve(now)
	if err != nil {
		return History{}, err
	}
	// One more interval is needed for the rate of the first one.
	buckets, err := o.core.History.Read(ctx, resolution, h.Since.Add(-h.Step), h.Until.Add(-1))
	if err != nil {
		return History{}, fmt.Errorf("admin: history: %w", err)
	}
	h.fill(buckets)
	return h, nil
}

// resolve returns the resolution of a range, and a History without intervals whose times are set.
func (r HistoryRange) resolve(now time.Time) (history.Resolution, History, error) {
	h := History{Since: r.Since, Until: r.Until, Step: r.Step, Intervals: []HistoryInterval{}}
	if h.Until.IsZero() || h.Until.After(now) {
		h.Until = now
	}
	if h.Since.IsZero() {
		h.Since = h.Until.Add(-time.Hour)
	}
	switch {
	case h.Since.After(h.Until):
		return history.Resolution{}, h, fmt.Errorf("admin: history: Since %v is later than Until %v; use an earlier time",
			h.Since.UTC().Format(time.RFC3339), h.Until.UTC().Format(time.RFC3339))
	case h.Step < 0:
		return history.Resolution{}, h, errors.New("admin: history: Step is negative; use 0 for the default, or more")
	}
	resolution := history.Fine()
	if h.Since.Before(now.Add(-resolution.Keep-historyLag)) || h.Step >= history.Coarse().Step {
		resolution = history.Coarse()
	}
	if oldest := now.Add(-resolution.Keep); h.Since.Before(oldest) {
		h.Since = oldest
	}
	if rest := h.Step % resolution.Step; rest > 0 || h.Step == 0 {
		h.Step += resolution.Step - rest
	}
	if resolution == history.Fine() {
		if last := now.Add(-historyLag).Truncate(resolution.Step); h.Until.After(last) {
			h.Until = last
		}
	}
	h.Since = h.Since.Truncate(h.Step)
	if h.Until.Before(h.Since) {
		h.Until = h.Since
	}
	return resolution, h, nil
}

// fill adds the intervals. The buckets may begin before it does.
func (h *History) fill(buckets []history.Bucket) {
	h.Total = newInterval(h.Since, h.Until.Sub(h.Since))
	var before, now measurement
	for _, b := range buckets {
		at := b.At.Truncate(h.Step)
		if !at.Equal(now.at) {
			before, now = latest(now, before), measurement{at: at}
		}
		if b.Gauges != nil {
			now.enqueued, now.known = max(now.enqueued, b.Gauges.Enqueued), true
		}
		if at.Before(h.Since) {
			continue
		}
		if n := len(h.Intervals); n == 0 || !h.Intervals[n-1].At.Equal(at) {
			h.Intervals = append(h.Intervals, newInterval(at, min(h.Step, h.Until.Sub(at))))
		}
		last := &h.Intervals[len(h.Intervals)-1]
		last.add(b)
		h.Total.add(b)
		if now.known && before.known {
			last.Measured.Enqueued = now.since(before)
		}
	}
	for _, i := range h.Intervals {
		if i.Measured != nil {
			h.Total.Measured.Enqueued = max(h.Total.Measured.Enqueued, i.Measured.Enqueued)
		}
	}
}

// measurement is the number of events that were ever enqueued, at the end of an interval.
type measurement struct {
	at       time.Time
	enqueued int64
	known    bool
}

// latest returns the later one of two measurements, or the earlier one if the later one is not known.
func latest(later, earlier measurement) measurement {
	if later.known {
		return later
	}
	return earlier
}

// since returns the events per second since an earlier measurement. Shards that were deleted make it 0.
func (m measurement) since(before measurement) float64 {
	return float64(max(0, m.enqueued-before.enqueued)) / m.at.Sub(before.at).Seconds()
}

func newInterval(at time.Time, long time.Duration) HistoryInterval {
	return HistoryInterval{At: at, Duration: long, Destinations: map[string]Outcomes{}, Classes: map[string]int64{}}
}

func (i *HistoryInterval) add(b history.Bucket) {
	for name, more := range b.Destinations {
		i.Destinations[name] = i.Destinations[name].plus(more)
		i.Outcomes = i.Outcomes.plus(more)
	}
	i.Others, i.Outcomes = i.Others.plus(b.Others), i.Outcomes.plus(b.Others)
	for class, n := range b.Classes {
		i.Classes[class] += n
	}
	i.OtherFailures += b.OtherClasses
	if b.Gauges == nil {
		return
	}
	if i.Measured == nil {
		i.Measured = new(Measured)
	}
	m, g := i.Measured, b.Gauges
	m.Oldest, m.Full = max(m.Oldest, g.Oldest), max(m.Full, g.Full)
	m.Events, m.Bytes = max(m.Events, g.Events), max(m.Bytes, g.Bytes)
	m.Parked, m.Blocked = max(m.Parked, g.Parked), max(m.Blocked, g.Blocked)
}

func (o Outcomes) plus(more history.Outcomes) Outcomes {
	sum := history.Outcomes(o)
	sum.Add(more)
	return Outcomes(sum)
}
