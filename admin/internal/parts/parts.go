// Package parts lets the packages below admin reach the parts of an Operator, so that its API does not have to show them.
package parts

import (
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/outbox"
)

// Core holds the parts of an Operator.
type Core struct {
	Transactor *luatx.Transactor
	Client     redis.UniversalClient
	Scripts    *shard.Scripts
	Store      *outbox.Store
	Processes  *process.List
	History    *history.History
	// Name is recorded in the audit.
	Name string
	// Destinations returns an error for a destination to which events may not be re-armed. If it is nil, all are allowed.
	Destinations func(string) error
}

// Handle is embedded in an Operator. Of reads it.
type Handle struct{ core *Core }

// NewHandle returns a handle on the parts of an Operator.
func NewHandle(core *Core) Handle { return Handle{core} }

func (h Handle) open() *Core { return h.core }

// Of returns the parts of an *admin.Operator.
func Of(operator interface{ open() *Core }) *Core { return operator.open() }

// MaxReason is the maximum size of a reason, in bytes.
const MaxReason = 1024
