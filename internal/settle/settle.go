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
	Retry    = "failed" // the relay retries it after a pause, or parks it if it has used up its attempts
	Park     = "parked" // it stays in the outbox until an operator acts
	GiveBack = "back"   // the relay retries it after a pause, and the attempt does not count
	Hold     = "hold"   // like GiveBack, until the pause of its destination ends; no error results in it
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

// Decide returns the fate of an event after an attempt to publish it that returned err.
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

// IsUntried reports whether an error means that the relay did not try the event or message.
func IsUntried(err error) bool {
	u, ok := errors.AsType[Untried](err)
	return ok && u.Untried()
}

// Wait returns how long a returned event waits. If the event must wait its turn (ErrLater), it is the delay in the
// error. Otherwise, it is the pause of its destination.
func Wait(err error, pause time.Duration) time.Duration {
	if errors.Is(err, ErrLater) {
		asked, _ := message.RetryDelay(err)
		return asked
	}
	return pause
}

// Pause returns how long an event waits before the relay retries it: the delay that err requests, or the given one if
// there is none.
func Pause(err error, otherwise time.Duration) time.Duration {
	if asked, ok := message.RetryDelay(err); ok {
		return asked
	}
	return otherwise
}
