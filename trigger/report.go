package trigger

import (
	"github.com/redis/go-redis/v9"

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

// report tells operators what the trigger does, and how it is.
func (r *Runtime) report() process.Report {
	h, s := r.Health(), r.Stats()
	t := &process.TriggerReport{
		Function: h.Function, Transport: h.Transport, State: string(h.State), Since: h.Since, Ready: h.Ready, Stalled: h.Stalled,
		Retrying: s.Retrying, OldestUnacked: s.OldestUnacked, LastErrorAt: h.LastErrorAt,
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
