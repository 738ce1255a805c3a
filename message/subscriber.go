package message

import (
	"context"
	"errors"
	"fmt"
)

// Subscriber reads encoded messages until its context ends, and then closes the channel.
type Subscriber interface {
	Subscribe(ctx context.Context) (<-chan *RawMessage, error)
}

// forwarder is a Subscriber that may read an outbox.
type forwarder interface{ Forwards() bool }

// AddSubscriber adds the messages of a subscriber as a raw input, with a matcher as in AddRawInput. Run subscribes, ends the
// subscription when it stops, and returns after the subscription has closed its channel. AddSubscriber returns ErrStarted if the
// Engine runs.
//
// If the subscriber has a method Forwards() bool that returns true, it reads an outbox: an ack of its message means that the
// event has been published. Run returns a *WiringError if the Engine sends the outputs of such messages to raw outputs under
// AckOnSuccess. With AddRawInput, Run detects the outbox only with the first event that it handles. It nacks that event, stops,
// and returns the same error.
//
// A subscriber that keeps order has a method Ordered() error, which returns nil if every message has a Position. It delivers each
// message after the one in front of it in the partition was settled, or else Position.After names that one. Run returns a
// *WiringError if a middleware needs order and the subscriber has no such method, or if the method returns an error.
func (e *Engine) AddSubscriber(name string, matcher Matcher, s Subscriber) error {
	if s == nil {
		return fmt.Errorf("message: subscriber %q is nil", name)
	}
	return e.addInput(rawInput{name: name, matcher: matcher, subscriber: s})
}

// Check returns an error if the Engine's config or wiring is invalid, as Run does. The error is a *WiringError for a combination
// that loses messages. After Check, no handler or middleware can be added.
func (e *Engine) Check() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	if err := e.router.start(); err != nil {
		return err
	}
	if err := e.router.checkOrder(e.inputs); err != nil {
		return err
	}
	if e.cfg.Pipe.AckStrategy != AckOnSuccess || len(e.outputs) == 0 || hasOutbox(e.router.traits()) {
		return nil
	}
	for _, in := range e.inputs {
		if f, ok := in.subscriber.(forwarder); ok && f.Forwards() {
			return lostByAck(fmt.Sprintf("the outbox that raw input %q reads", in.name))
		}
	}
	return nil
}

// subscribe opens the channels of the subscribers with a subscription until ctx ends.
func (e *Engine) subscribe(ctx context.Context) error {
	for i, in := range e.inputs {
		if in.subscriber == nil {
			continue
		}
		ch, err := in.subscriber.Subscribe(ctx)
		if err != nil {
			return fmt.Errorf("message: raw input %q: %w", in.name, err)
		}
		e.inputs[i].ch = ch
	}
	return nil
}

// unsubscribe waits until the subscribers, whose context has ended, have closed their channels.
func (e *Engine) unsubscribe(ctx context.Context) {
	for _, in := range e.inputs {
		if in.subscriber == nil || in.ch == nil {
			continue
		}
		for raw := range in.ch {
			if raw != nil {
				e.refuse(ctx, opened(raw), fmt.Errorf("%w before it was taken over", ErrStopped))
			}
		}
	}
}

// ProcessRaw handles and settles one encoded message, like Process, for callers that accept no outputs, such as
// stream.Subscriber.Consume. If no outbox stores an output, ProcessRaw nacks the message and returns an error that wraps
// ErrNoOutput.
func (e *Engine) ProcessRaw(ctx context.Context, raw *RawMessage) error {
	if e.err != nil {
		return e.err
	}
	return e.router.ProcessRaw(ctx, raw)
}

// ProcessRaw handles and settles one message with encoded data, like Process, for callers that accept no outputs, such as
// stream.Subscriber.Consume. Handlers from NewHandler and NewCommandHandler decode JSON. If no outbox stores an output,
// ProcessRaw nacks the message and returns an error that wraps ErrNoOutput.
func (r *Router) ProcessRaw(ctx context.Context, raw *RawMessage) error {
	if raw == nil {
		return errors.Join(r.start(), errNilMessage)
	}
	_, err := r.process(ctx, opened(raw), true)
	return err
}
