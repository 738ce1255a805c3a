package stream

import (
	"context"
	"time"

	"github.com/luatx/luatx/internal/observe"
	"github.com/luatx/luatx/message"
)

// Observer receives notifications of deliveries, settlements and dead letters, for metrics and traces. The Subscriber does
// not call functions that are nil. It counts events by itself; see Stats.
//
// The functions hold no lock. Delivered runs in the goroutine that reads, and Settled in the one that settles, so a slow
// function delays them. Several goroutines call the functions at once. A panic is logged.
type Observer struct {
	// Delivered is called for each message that is delivered.
	Delivered func(context.Context, Delivered)
	// Settled is called for each delivered message that is settled.
	Settled func(context.Context, Settled)
	// DeadLettered is called for each entry that is moved to the dead-letter stream.
	DeadLettered func(context.Context, DeadLettered)
}

// And returns an Observer that notifies o and then other.
func (o Observer) And(other Observer) Observer {
	return Observer{
		Delivered:    observe.Both(o.Delivered, other.Delivered),
		Settled:      observe.Both(o.Settled, other.Settled),
		DeadLettered: observe.Both(o.DeadLettered, other.DeadLettered),
	}
}

// Delivered is a message that was delivered.
type Delivered struct {
	Source message.Source
	// Deliveries is the number of deliveries counted by the group, from 1.
	Deliveries int64
	// ClaimedFrom is the consumer from which the message was claimed. It is empty if the message was not claimed or the
	// consumer is unknown.
	ClaimedFrom string
}

// Settled is a message that was settled.
type Settled struct {
	Source     message.Source
	Deliveries int64
	// Duration is the time since the delivery, including the wait for a worker.
	Duration time.Duration
	// Err is the error of the nack, or nil if the message was acknowledged or released.
	Err error
	// Released reports that another consumer had claimed the message meanwhile.
	Released bool
}

// DeadLettered is an entry that was moved to the dead-letter stream.
type DeadLettered struct {
	Source     message.Source
	Deliveries int64
	Reason     string
}

func (s *subscription) source(e *entry) message.Source {
	return message.Source{Stream: s.cfg.Stream, Group: s.cfg.Group, Consumer: s.member.Consumer, Entry: e.id}
}

// given counts a message that is delivered, and notifies the observer.
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

// notifySettled notifies the observer of a settled message before another consumer may get its entry.
func (s *subscription) notifySettled(e *entry, nacked error, released bool) {
	if s.cfg.Observer.Settled == nil {
		return
	}
	observe.Tell(s.detached, s.cfg.Logger, s.cfg.Observer.Settled,
		Settled{s.source(e), e.deliveries, time.Since(e.read), nacked, released})
}

func (s *subscription) notifyDeadLettered(e *entry, reason string) {
	observe.Tell(s.detached, s.cfg.Logger, s.cfg.Observer.DeadLettered, DeadLettered{s.source(e), e.deliveries, reason})
}
