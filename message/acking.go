package message

import "sync"

// Source is where a message was read: an entry of a Redis stream, delivered to a consumer of a group.
type Source struct {
	Stream, Group, Consumer, Entry string
}

// AckingConfig configures how a message is settled. Each function may be nil and is called at most once, without a lock held. A
// panic of a function propagates to the call that settled the message, after everything else was done.
type AckingConfig struct {
	// Ack notifies the source that the message was handled.
	Ack func()
	// Nack returns the message to the source, with the reason.
	Nack func(error)
	// Release notifies the source that the consumer gave the message up without a result, because it belongs to another consumer.
	Release func()
	// Settled runs after any settlement, and after Ack, Nack or Release if one is called. Use it to count messages in flight.
	Settled func()
	// Source is where the message was read. Defaults to unknown.
	Source Source
	// Position is where the message stands in a source that keeps order. Defaults to none.
	Position Position
	// Forward means that the message is an event of an outbox, and that an ack means that the event has been published. A Router
	// that would ack it earlier, under AckOnSuccess with outputs, nacks it with a *WiringError. Defaults to false.
	Forward bool
}

// Acking settles a message exactly once: the first ack, nack, release or acknowledged call wins. Pass it to New or SetAcking, and
// use it through the message.
type Acking struct {
	ack, release, onSettled func()
	nack                    func(error)
	from                    Source
	forward                 bool
	at                      *placed // nil: the source keeps no order

	group *group // of a shared acking and its shares
	share bool

	mu      sync.Mutex
	outcome outcome
	err     error
	told    bool
	done    chan struct{} // created on first use
}

type outcome int

const (
	unsettled outcome = iota
	acked
	nacked
	released
	acknowledged
)

// NewAcking returns an acking with two functions, each of which may be nil.
func NewAcking(ack func(), nack func(error)) *Acking {
	return NewAckingFrom(AckingConfig{Ack: ack, Nack: nack})
}

// NewAckingFrom returns an acking with a config.
func NewAckingFrom(cfg AckingConfig) *Acking {
	a := &Acking{
		ack: cfg.Ack, nack: cfg.Nack, release: cfg.Release, onSettled: cfg.Settled, from: cfg.Source, forward: cfg.Forward,
	}
	if cfg.Position.Offset != "" {
		a.at = &placed{at: cfg.Position}
	}
	return a
}

// settle settles the acking and reports whether this call did.
func (a *Acking) settle(o outcome, err error) bool {
	if a == nil {
		return false
	}
	if o == nacked && err == nil {
		err = ErrNacked
	}
	if !a.decide(o, err) {
		return false
	}
	defer a.finish()
	switch {
	case a.group != nil:
		a.group.settle(o, err)
	case o == acked && a.ack != nil:
		a.ack()
	case o == nacked && a.nack != nil:
		a.nack(err)
	case o == released && a.release != nil:
		a.release()
	}
	return true
}

// decide stores the outcome and reports whether there was none before.
func (a *Acking) decide(o outcome, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outcome != unsettled {
		return false
	}
	a.outcome, a.err = o, err
	return true
}

// finish runs deferred, so that waiters continue even if a callback panics.
func (a *Acking) finish() {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.told = true
		if a.done != nil {
			close(a.done)
		}
	}()
	if a.onSettled != nil {
		a.onSettled()
	}
}

func (a *Acking) settled() <-chan struct{} {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil {
		a.done = make(chan struct{})
		if a.told {
			close(a.done)
		}
	}
	return a.done
}

func (a *Acking) reason() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func (a *Acking) source() (Source, bool) {
	if a == nil || a.group != nil || a.from == (Source{}) {
		return Source{}, false
	}
	return a.from, true
}

// forwards reports whether an ack means that an event has been published.
func (a *Acking) forwards() bool {
	return a != nil && (a.forward || a.group != nil && a.group.cfg.forward)
}

// join returns the acking that a message holds: the acking itself, or a share of a shared one.
func (a *Acking) join() *Acking {
	if a == nil || a.group == nil || a.share {
		return a
	}
	return a.group.newShare()
}
