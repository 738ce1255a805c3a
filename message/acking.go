package message

import "sync"

// Source is where a message was read: an entry of a Redis stream, delivered to a consumer of a group.
type Source struct {
	Stream, Group, Consumer, Entry string
}

// AckingConfig says how a message is settled. Each function may be nil; none is called more than once, and no lock is
// held while one runs. A panic in one comes out of the call that settled, after everything else has been done.
type AckingConfig struct {
	// Ack tells the source that the message was handled.
	Ack func()
	// Nack gives the message back to the source, with the reason.
	Nack func(error)
	// Release tells the source that the message was given up with nothing said about it: it is another's by now.
	Release func()
	// Settled runs after any settlement, and after Ack, Nack or Release where there is one: for counting messages in flight.
	Settled func()
	// Source is where the message was read. Defaults to unknown.
	Source Source
	// Forward says that the message is an event of an outbox, and that an ack says that the event has been published. A
	// Router that would ack it earlier, under AckOnSuccess with outputs, nacks it with a *WiringError. Defaults to false.
	Forward bool
}

// Acking settles a message exactly once: the first of ack, nack, release and acknowledged wins.
// It is given to New or SetAcking and used through the message.
type Acking struct {
	cfg   AckingConfig
	group *group // of a shared acking and its shares
	share bool

	mu      sync.Mutex
	outcome outcome
	err     error
	told    bool
	done    chan struct{} // made when it is first asked for
}

type outcome int

const (
	unsettled outcome = iota
	acked
	nacked
	released
	acknowledged
)

// NewAcking makes an acking from the two functions, each of which may be nil.
func NewAcking(ack func(), nack func(error)) *Acking {
	return NewAckingFrom(AckingConfig{Ack: ack, Nack: nack})
}

// NewAckingFrom makes an acking from a config.
func NewAckingFrom(cfg AckingConfig) *Acking {
	return &Acking{cfg: cfg}
}

// settle reports whether it was this call that settled.
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
	case o == acked && a.cfg.Ack != nil:
		a.cfg.Ack()
	case o == nacked && a.cfg.Nack != nil:
		a.cfg.Nack(err)
	case o == released && a.cfg.Release != nil:
		a.cfg.Release()
	}
	return true
}

// decide notes the outcome, and reports whether there was none before.
func (a *Acking) decide(o outcome, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outcome != unsettled {
		return false
	}
	a.outcome, a.err = o, err
	return true
}

// finish runs in a defer, so that a panicking callback leaves nobody waiting.
func (a *Acking) finish() {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.told = true
		if a.done != nil {
			close(a.done)
		}
	}()
	if a.cfg.Settled != nil {
		a.cfg.Settled()
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
	if a == nil || a.group != nil || a.cfg.Source == (Source{}) {
		return Source{}, false
	}
	return a.cfg.Source, true
}

// forwards reports whether an ack says that an event has been published.
func (a *Acking) forwards() bool {
	return a != nil && (a.cfg.Forward || a.group != nil && a.group.cfg.forward)
}

// join returns what a message holds: the acking itself, or a share of a shared one.
func (a *Acking) join() *Acking {
	if a == nil || a.group == nil || a.share {
		return a
	}
	return a.group.newShare()
}
