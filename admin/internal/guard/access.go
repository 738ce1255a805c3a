package guard

import "errors"

// Access is a right to act on the outbox and the inbox. Each right includes the lesser ones; the zero value grants nothing.
type Access int

// The rights.
const (
	MayNothing Access = iota
	MayView
	MayRetry
	MayPurge
)

// String returns "" for no right, or view, retry or purge.
func (a Access) String() string {
	switch {
	case a >= MayPurge:
		return "purge"
	case a == MayRetry:
		return "retry"
	case a == MayView:
		return "view"
	}
	return "nothing"
}

// Identity is the sender of a request.
type Identity struct {
	Name     string
	May      Access
	Payloads bool
}

// ErrUnknown is the error of an authorizer that cannot identify the sender of a request.
var ErrUnknown = errors.New("admin: the sender of the request is unknown")
