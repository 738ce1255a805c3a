package trigger

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/process"
)

// processes is the list in which the trigger registers itself, or nil.
func (r *Runtime) processes(driver Driver) *process.List {
	own, ok := driver.(interface{ server() redis.UniversalClient })
	if !ok || r.cfg.Namespace == "" {
		return nil
	}
	return process.New(own.server(), r.cfg.Namespace, r.cfg.logger())
}

// report publishes the state of the trigger for operators.
func (r *Runtime) report(ctx context.Context, driver Driver) process.Report {
	h, s := r.Health(), r.Stats()
	t := &process.TriggerReport{
		Function: h.Function, Transport: h.Transport, State: string(h.State), Since: h.Since, Ready: h.Ready, Stalled: h.Stalled,
		Retrying: s.Retrying, OldestUnacked: s.OldestUnacked, LastErrorAt: h.LastErrorAt,
	}
	if counter, ok := driver.(interface {
		lag(ctx context.Context) (int64, error)
	}); ok {
		bounded, cancel := context.WithTimeout(ctx, lagTimeout)
		defer cancel()
		var err error
		if t.Lag, err = counter.lag(bounded); err != nil {
			t.Lag = -1
		}
	}
	if h.LastError != nil {
		text := h.LastError.Error()
		t.LastError = text[:min(len(text), process.MaxError)]
	}
	return process.Report{
		Stream: r.cfg.Stream, Group: r.cfg.Group, InFlight: s.InFlight, Trigger: t,
		Counts: map[string]int64{
			"delivered": s.Delivered, "failed": s.Failed, "acked": s.Acked, "ack_failed": s.AckFailed, "dead_lettered": s.DeadLettered,
			"dropped": s.Dropped, "reconnects": s.Reconnects,
		},
	}
}

const (
	// lagTimeout bounds the time that a heartbeat waits for the lag.
	lagTimeout = time.Second
	// maxLag is the number of entries that a trigger without a group counts.
	maxLag = 100
)

// lag returns the number of entries that the group has not read, or -1 if it is unknown.
func (g *grouped) lag(ctx context.Context) (int64, error) {
	groups, err := g.client.XInfoGroups(ctx, g.cfg.Stream).Result()
	if err != nil {
		return -1, err
	}
	for _, info := range groups {
		if info.Name == g.cfg.Group {
			return group.Lag(ctx, g.client, g.cfg.Stream, info)
		}
	}
	return -1, nil
}

// lag returns the number of entries behind the last one that was read, or -1 if there are more than 100.
func (p *plain) lag(ctx context.Context) (int64, error) {
	p.mu.Lock()
	position := p.position
	p.mu.Unlock()
	unread, err := p.client.XRangeN(ctx, p.cfg.Stream, group.Behind(position), "+", maxLag+1).Result()
	if err != nil || len(unread) > maxLag {
		return -1, err
	}
	return int64(len(unread)), nil
}
