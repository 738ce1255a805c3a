package desk

import (
	"context"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/parts"
)

// Span is a part of the history that pages show: the time until now, and the length of its intervals.
type Span struct{ Long, Step time.Duration }

// Hour returns the span of the last hour.
func Hour() Span { return Span{time.Hour, 10 * time.Second} }

// Day returns the span of the last 24 hours.
func Day() Span { return Span{24 * time.Hour, 15 * time.Minute} }

// Month returns the span of the last 30 days.
func Month() Span { return Span{30 * 24 * time.Hour, 2 * time.Hour} }

// Histories caches the last history of each span for all callers.
type Histories struct {
	op   *admin.Operator
	read chan map[Span]reading // held by the caller that queries the server
}

type reading struct {
	history admin.History
	at      time.Time
}

// historyFreshness is how long a history is reused. Relays write every 10 seconds.
const historyFreshness = 10 * time.Second

func newHistories(op *admin.Operator) *Histories {
	h := &Histories{op: op, read: make(chan map[Span]reading, 1)}
	h.read <- map[Span]reading{}
	return h
}

// Recent returns the history of a span until now. It queries the server at most once in 10 seconds for a span.
func (h *Histories) Recent(ctx context.Context, s Span) (admin.History, error) {
	var known map[Span]reading
	select {
	case known = <-h.read:
	case <-ctx.Done():
		return admin.History{}, context.Cause(ctx)
	}
	defer func() { h.read <- known }()
	if last, ok := known[s]; ok && time.Since(last.at) < historyFreshness {
		return last.history, nil
	}
	now, err := parts.Of(h.op).History.Now(ctx)
	if err != nil {
		return admin.History{}, err
	}
	found, err := h.op.History(ctx, admin.HistoryRange{Since: now.Add(-s.Long), Step: s.Step})
	if err == nil {
		known[s] = reading{found, time.Now()}
	}
	return found, err
}
