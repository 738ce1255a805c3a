package message

import (
	"context"
	"fmt"
	"slices"
)

// Middleware wraps the handling of a message. A Router applies it once for each of its handlers. NewMiddleware creates one from a
// function, and Chain combines several.
type Middleware struct {
	wrap   func(next ProcessFunc) ProcessFunc
	traits []Traits // of each middleware of a chain, outermost first
}

// Traits describe what a middleware does with messages. When a Router starts, it compares the traits of its middlewares and
// returns a *WiringError if they lose messages together. The zero value makes no claim.
type Traits struct {
	// Name is the name of the middleware in errors, such as "inbox.Middleware".
	Name string
	// Inbox means that the middleware skips and acknowledges a message that was handled before.
	Inbox bool
	// Outbox means that the middleware stores the outputs of the handler and returns none.
	Outbox bool
	// Transaction means that the middleware commits everything that the steps inside it have recorded or written, once they succeed.
	Transaction bool
	// Ordered means that the middleware needs every message of a partition after the one in front of it, with its Position.
	Ordered bool
	// Inside returns an error if the middleware loses messages inside the given ones, outermost first. Defaults to none.
	Inside func(outer []Traits) error
}

// NewMiddleware returns a middleware that uses a function to wrap the next step. Only middlewares that skip messages or store
// outputs need traits.
func NewMiddleware(wrap func(next ProcessFunc) ProcessFunc, traits ...Traits) Middleware {
	return Middleware{wrap: wrap, traits: traits}
}

// Chain combines middlewares into one, the first outermost. It keeps their traits. A function that calls Wrap of several
// middlewares would hide them from the Router.
func Chain(mw ...Middleware) Middleware {
	var chain Middleware
	for _, m := range mw {
		chain.traits = append(chain.traits, m.traits...)
	}
	chain.wrap = func(next ProcessFunc) ProcessFunc {
		for _, m := range slices.Backward(mw) {
			next = m.Wrap(next)
		}
		return next
	}
	return chain
}

// Wrap returns next wrapped in the middleware. The zero Middleware returns next.
func (m Middleware) Wrap(next ProcessFunc) ProcessFunc {
	if m.wrap == nil {
		return next
	}
	return m.wrap(next)
}

// WiringError reports a combination of ack strategy, middlewares, inputs and outputs that would lose messages.
type WiringError struct {
	// Problem states which messages would be lost, and when.
	Problem string
	// Remedy states what to change.
	Remedy string
}

// Error returns the problem and the remedy.
func (e *WiringError) Error() string { return "message: unsafe wiring: " + e.Problem + "; " + e.Remedy }

// Untried returns true. The message was not tried, so a nack with this error does not count as an attempt of an event.
func (e *WiringError) Untried() bool { return true }

// lostByInbox returns the error for outputs that a redelivery does not create again.
func lostByInbox(inbox string) error {
	return &WiringError{
		Problem: fmt.Sprintf("AckForward with %s and no outbox loses outputs: if the destination rejects one, the redelivery is skipped as a duplicate", inbox),
		Remedy:  "add an outbox inside the inbox, so that the outputs commit together with the mark, or remove the inbox",
	}
}

// lostByAck returns the error for the outputs of an outbox event that is acked before they are published.
func lostByAck(input string) error {
	return &WiringError{
		Problem: fmt.Sprintf("AckOnSuccess acknowledges an event of %s before its destination has taken it, and loses it if the destination rejects it", input),
		Remedy:  "set PipeConfig.AckStrategy to AckForward, which acknowledges the event when the destination has",
	}
}

// CheckOutputs returns an error if the outputs of msg could be lost after a transaction around the handler has committed. A
// middleware that commits must call it first with the context of the handling, and roll back if it returns an error. Skips states
// whether the commit marks the message, so that a redelivery is skipped. The error is a *WiringError, or wraps ErrNoOutput under
// ProcessRaw.
func CheckOutputs(ctx context.Context, msg *Message, outputs []*Message, skips bool) error {
	if len(outputs) == 0 {
		return nil
	}
	r, ok := ctx.Value(routeKey).(*route)
	switch {
	case !ok:
		return nil
	case r.strategy == AckForward && skips:
		return lostByInbox("an inbox")
	case r.strategy == AckOnSuccess && msg.acking.forwards():
		return lostByAck("an outbox")
	case r.end:
		return fmt.Errorf("%w: the handler returned %d for ProcessRaw, which hands out none; add an outbox", ErrNoOutput, len(outputs))
	default:
		return nil
	}
}

// Check returns an error if the Router's config, handlers or middlewares are invalid. The error is a *WiringError if middlewares
// lose messages together. After Check, nothing can be added to the Router. Process, Pipe and Engine.Run call Check too.
func (r *Router) Check() error { return r.start() }

// traits returns the traits of all middlewares, outermost first.
func (r *Router) traits() []Traits {
	var all []Traits
	for _, mw := range r.middleware {
		all = append(all, mw.traits...)
	}
	return all
}

// checkWiring compares the traits of the middlewares with each other and with the ack strategy.
func (r *Router) checkWiring() error {
	all := r.traits()
	for i, t := range all {
		if t.Inside == nil {
			continue
		}
		if err := t.Inside(all[:i:i]); err != nil {
			return err
		}
	}
	if err := r.checkOrder(nil); err != nil {
		return err
	}
	inbox := slices.IndexFunc(all, func(t Traits) bool { return t.Inbox })
	if r.cfg.AckStrategy == AckForward && inbox >= 0 && !hasOutbox(all) {
		return lostByInbox(all[inbox].Name)
	}
	return nil
}

func hasOutbox(all []Traits) bool {
	return slices.ContainsFunc(all, func(t Traits) bool { return t.Outbox })
}
