package stream

import (
	"github.com/luatx/luatx/internal/process"
)

// processes returns the list in which Subscribe registers the Subscriber, or nil.
func (s *Subscriber) processes() *process.List {
	if s.cfg.Namespace == "" {
		return nil
	}
	return process.New(s.client, s.cfg.Namespace, s.cfg.Logger)
}

// report returns the state and counts of the Subscriber for operators.
func (s *subscription) report() process.Report {
	return process.Report{
		Stream: s.cfg.Stream, Group: s.cfg.Group, Consumer: s.member.Consumer, InFlight: s.ledger.inFlight(), Counts: s.Stats().counts(),
	}
}

// report returns the state and counts of the member for operators.
func (m *member) report() process.Report {
	r := process.Report{
		Stream: m.cfg.Stream, Group: m.cfg.Group, Consumer: m.name, InFlight: m.inFlight.Load(), Counts: m.Stats().counts(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.partitions {
		if !p.held {
			continue
		}
		if r.Holding++; len(r.Partitions) < process.MaxPartitions {
			r.Partitions = append(r.Partitions, p.cfg.Stream)
		}
	}
	return r
}

func (s SubscriberStats) counts() map[string]int64 {
	return map[string]int64{
		"delivered": s.Delivered, "redelivered": s.Redelivered, "claimed": s.Claimed, "malformed": s.Malformed, "trimmed": s.Trimmed,
		"ack_failed": s.AckFailed, "dead_lettered": s.DeadLettered,
	}
}
