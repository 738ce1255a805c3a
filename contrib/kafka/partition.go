package kafka

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/message"
)

type state int

const (
	waiting   state = iota
	out             // with a handler
	postponed       // nacked: due again later
	acked
)

// entry is a record whose offset cannot be committed yet.
type entry struct {
	rec       *kgo.Record
	partition *partition
	state     state
	nacks     int
	due       time.Time
}

// partition is a partition that this member of the group owns. The Subscriber's lock guards it.
type partition struct {
	place
	epoch     string // of the topic
	tenure    *message.Tenure
	entries   []*entry // by offset; the first one is not acked
	open      int      // out or postponed
	next      kgo.EpochOffset
	dirty     bool // next must be committed
	paused    bool
	abandoned chan struct{} // closed when the partition belongs to another member
}

func (p *partition) gone() bool {
	select {
	case <-p.abandoned:
		return true
	default:
		return false
	}
}

// nextRecord returns the next record to hand out. A nacked record that is due precedes those behind it. If there is none, due is
// the time at which one becomes due, or zero if waiting does not help.
func (p *partition) nextRecord(now time.Time, most int) (e *entry, due time.Time) {
	for _, e := range p.entries {
		switch e.state {
		case postponed:
			if !e.due.After(now) {
				e.state = out
				return e, time.Time{}
			}
			if due.IsZero() || e.due.Before(due) {
				due = e.due
			}
		case waiting:
			if p.open >= most {
				return nil, due
			}
			e.state = out
			p.open++
			return e, time.Time{}
		case out, acked:
		}
	}
	return nil, due
}

// ack moves the offset up to the first record that is not acked.
func (p *partition) ack(e *entry) {
	e.state = acked
	p.open--
	n := 0
	for n < len(p.entries) && p.entries[n].state == acked {
		last := p.entries[n].rec
		p.next = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
		p.dirty = true
		n++
	}
	p.entries = slices.Delete(p.entries, 0, n)
	e.rec = &kgo.Record{Offset: e.rec.Offset, LeaderEpoch: e.rec.LeaderEpoch} // keeps only what the commit needs
}
