package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/shard"
)

// Pause is a paused destination: relays publish nothing to it.
type Pause struct {
	Destination string `json:"destination"`
	// Who names the operator that paused it, and Why the reason. Since and Until are by the server's clock. Until is zero if the
	// pause has no end.
	Who   string    `json:"who"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
}

// ErrTooManyPauses is returned by Pause if 1,000 destinations are paused.
var ErrTooManyPauses = errors.New("admin: 1,000 destinations are paused already; resume some first")

// Pause stops all relays of the Transactor's namespace from publishing to a destination until Resume, or until a time by the
// server's clock unless that is zero. Relays see the pause within about a second, and still publish the events that they have
// handed to their publisher by then. The events stay in the outbox, lose no attempt, and keep the order of their keys. When the
// pause ends, relays publish them within seconds. Other destinations are not affected.
//
// The destination is that of outbox.Filter, which is the one in the event's body or the one that an operator has given it, or
// the scope of the relay's publisher (relay.Scoped) as its log names it. Pausing a paused destination replaces its name, reason
// and end. The audit records the act pause.
func (o *Operator) Pause(ctx context.Context, destination, reason string, until time.Time) error {
	switch {
	case destination == "" || len(destination) > parts.MaxReason:
		return fmt.Errorf("admin: pause: the destination has %d bytes; use 1 to %d", len(destination), parts.MaxReason)
	case reason == "" || len(reason) > parts.MaxReason:
		return fmt.Errorf("admin: pause: the reason has %d bytes; set a reason of 1 to %d bytes for the audit", len(reason), parts.MaxReason)
	}
	why := reason
	if !until.IsZero() {
		why += " (until " + until.UTC().Format(time.RFC3339) + ")"
	}
	ctx, cancel := context.WithTimeout(ctx, o.transactor.Config().CommitTimeout)
	defer cancel()
	answer, err := o.scripts.Pause(ctx, o.first(), o.act(why), destination, reason, until)
	switch {
	case err != nil:
		return fmt.Errorf("admin: pause: %w", err)
	case answer == shard.ActFull:
		return ErrTooManyPauses
	case answer == shard.ActState:
		return fmt.Errorf("admin: pause: until %s has passed by the server's clock; use a later time", until.UTC().Format(time.RFC3339))
	}
	return nil
}

// Resume ends the pause of a destination, and reports whether it was paused. The audit records the act resume.
func (o *Operator) Resume(ctx context.Context, destination string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, o.transactor.Config().CommitTimeout)
	defer cancel()
	answer, err := o.scripts.Resume(ctx, o.first(), o.act("resumed"), destination)
	if err != nil {
		return false, fmt.Errorf("admin: resume: %w", err)
	}
	return answer == shard.ActDone, nil
}

// Paused lists the paused destinations by name.
func (o *Operator) Paused(ctx context.Context) ([]Pause, error) {
	ctx, cancel := context.WithTimeout(ctx, o.transactor.Config().CommitTimeout)
	defer cancel()
	all, now, err := o.scripts.Pauses(ctx, o.first())
	if err != nil {
		return nil, fmt.Errorf("admin: paused: %w", err)
	}
	var active []Pause
	for _, p := range all {
		if p.Active(now) {
			active = append(active, Pause(p))
		}
	}
	return active, nil
}

// first returns the shard that holds the pauses.
func (o *Operator) first() shard.Shard {
	return o.scripts.Shard(o.transactor.Keyspace().Slots()[0])
}

// act returns a new operation for the audit.
func (o *Operator) act(why string) shard.Act {
	return shard.Act{Operation: rand.Text()[:16], Call: 1, Who: o.core.Name, Why: why}
}
