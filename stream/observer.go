package stream

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/observe"
	"github.com/luatx/luatx/message"
)

// Observer is told what becomes of entries, for metrics and traces. A function that is nil is not called, and costs
// nothing. For counts alone, see Stats.
//
// The functions run where it happens, outside of locks: Delivered in the goroutine that reads, Settled in the one that
// settles. A slow one holds that up. They are called by several goroutines at once. A panic ends in the log.
type Observer struct {
	// Delivered is called for each message that is delivered.
	Delivered func(context.Context, Delivered)
	// Settled is called for each delivered message when it is settled.
	Settled func(context.Context, Settled)
	// DeadLettered is called for each entry that went to the dead-letter stream.
	DeadLettered func(context.Context, DeadLettered)
}

// And returns an Observer that tells o and then other.
func (o Observer) And(other Observer) Observer {
	return Observer{
		Delivered:    observe.Both(o.Delivered, other.Delivered),
		Settled:      observe.Both(o.Settled, other.Settled),
		DeadLettered: observe.Both(o.DeadLettered, other.DeadLettered),
	}
}

// Delivered is a message that is given out.
type Delivered struct {
	Source message.Source
	// Deliveries counts them, from 1, as the group does.
	Deliveries int64
	// ClaimedFrom is the consumer that it was claimed from; empty where it was not, or that is not known.
	ClaimedFrom string
}

// Settled is a message that is settled.
type Settled struct {
	Source     message.Source
	Deliveries int64
	// Duration is how long ago it was given out, the wait for a worker included.
	Duration time.Duration
	// Err is what it was nacked with; nil: acknowledged, or released.
	Err error
	// Released says that it was another consumer's by then.
	Released bool
}

// DeadLettered is an entry that went to the dead-letter stream.
type DeadLettered struct {
	Source     message.Source
	Deliveries int64
	Reason     string
}

func (s *subscription) source(e *entry) message.Source {
	return message.Source{Stream: s.cfg.Stream, Group: s.cfg.Group, Consumer: s.member.Consumer, Entry: e.id}
}

// given counts a message that is delivered, and calls the observer.
func (s *subscription) given(e *entry, claimedFrom string) {
	s.counts.delivered.Add(1)
	if s.cfg.Observer.Delivered == nil {
		return
	}
	if claimedFrom == s.member.Consumer {
		claimedFrom = ""
	}
	observe.Tell(s.detached, s.cfg.Logger, s.cfg.Observer.Delivered, Delivered{s.source(e), e.deliveries, claimedFrom})
}

// tellSettled calls the observer for a message that is settled, before others may get its entry.
func (s *subscription) tellSettled(e *entry, nacked error, released bool) {
	if s.cfg.Observer.Settled == nil {
		return
	}
	observe.Tell(s.detached, s.cfg.Logger, s.cfg.Observer.Settled,
		Settled{s.source(e), e.deliveries, time.Since(e.read), nacked, released})
}

func (s *subscription) tellDeadLettered(e *entry, reason string) {
	observe.Tell(s.detached, s.cfg.Logger, s.cfg.Observer.DeadLettered, DeadLettered{s.source(e), e.deliveries, reason})
}
