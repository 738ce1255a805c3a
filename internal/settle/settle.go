// Package settle decides the fate of an event after an attempt to publish it. Relays, outbox.Store.Failed and outboxes in SQL
// share it.
package settle

import (
	"errors"
	"time"

	"github.com/luatx/luatx/message"
)

// Fate is the fate of an event, in the words of internal/lua/settle.lua.
type Fate string

// The fates.
const (
	Sent     = "sent"   // it was published
	Retry    = "failed" // it is tried again after a pause, or parked if it has used up its attempts
	Park     = "parked" // it stays until an operator acts
	GiveBack = "back"   // it is tried again after a pause, and the attempt does not count
	Hold     = "hold"   // like GiveBack, until the pause of its destination ends; no error leads to it
)

var (
	// ErrUnavailable is relay.ErrUnavailable.
	ErrUnavailable = errors.New("relay: unavailable")
	// ErrLater is relay.ErrLater.
	ErrLater = errors.New("relay: later")
)

// Untried is an error that may report that the event was not tried.
type Untried interface {
	error
	Untried() bool
}

// Decide returns the fate of an event for the error of the attempt to publish it.
func Decide(err error) Fate {
	switch {
	case err == nil:
		return Sent
	case errors.Is(err, ErrLater), errors.Is(err, ErrUnavailable), IsUntried(err):
		return GiveBack
	case message.IsPermanent(err):
		return Park
	}
	return Retry
}

// IsUntried reports whether an error says that the event or message was not tried.
func IsUntried(err error) bool {
	u, ok := errors.AsType[Untried](err)
	return ok && u.Untried()
}

// Wait returns how long an event waits that is given back: the delay of the error if the event must wait its turn (ErrLater), or
// else the pause of its destination.
func Wait(err error, pause time.Duration) time.Duration {
	if errors.Is(err, ErrLater) {
		asked, _ := message.RetryDelay(err)
		return asked
	}
	return pause
}

// Pause returns how long an event waits before it is retried: the delay that err requests, or else the given one.
func Pause(err error, otherwise time.Duration) time.Duration {
	if asked, ok := message.RetryDelay(err); ok {
		return asked
	}
	return otherwise
}
