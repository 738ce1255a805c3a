package link

import (
	"context"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/message"
)

// Claim is the position that the commit of a transaction moves instead of marking the id of its message.
type Claim struct {
	// Position is the position that the commit checks and moves.
	Position commit.Position
	// After returns the offset that the position must have reached before the commit, or "". It may change until the commit is sent.
	After func() string
	// At is the position of the message.
	At message.Position
	// Failed reports whether to park the message after a failure. It returns the key of the dead-letter stream, and the
	// fields and values of the dead letter.
	Failed func(ctx context.Context, cause error) (key string, letter []any, ok bool)
	// The commit calls Committed after it has moved the position, and Fenced after it has found a newer owner.
	Committed, Fenced func()
}

// Recording gives the inbox access to the inside of a luatx.Tx, which embeds it under an unexported name.
type Recording struct {
	inside *Inside
	claim  *Claim
}

// NewRecording returns a Recording of a transaction without a claim.
func NewRecording(inside *Inside) Recording { return Recording{inside: inside} }

func (r *Recording) recording() *Recording { return r }

type recorded interface{ recording() *Recording }

// InsideOf returns the inside of the Transactor of a transaction.
func InsideOf(tx recorded) *Inside { return tx.recording().inside }

// SetClaim makes the commit of a transaction move a position.
func SetClaim(tx recorded, claim *Claim) { tx.recording().claim = claim }

// ClaimOf returns the claim of a transaction, or nil if there is none.
func ClaimOf(tx recorded) *Claim { return tx.recording().claim }
