package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/script"
)

// Pause is a destination that relays publish nothing to for now.
type Pause struct {
	Destination string `json:"destination"`
	// Who paused it, and Why; Since and Until are by the server's clock. Until is zero where it has no end.
	Who   string    `json:"who"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
}

// ErrTooManyPauses says that no more destinations can be paused: 1,000 are.
var ErrTooManyPauses = errors.New("admin: 1,000 destinations are paused already: resume some")

// Pause keeps all relays of the Transactor's namespace from publishing to a destination until it is resumed, or until a
// time by the server's clock, unless that is zero. Relays hear of it within about a second; what they have handed to
// their publisher by then goes out. Its events stay in the outbox, lose no attempt, and keep the order of their lanes;
// those of other destinations go on. When the pause ends they go out within seconds.
//
// The destination is that of outbox.Filter: the one in the event's body, or the one an operator has given it; or the scope of
// the relay's publisher (relay.Scoped), as its log names it. Pausing a paused destination changes who, why and until. The
// step records it as the act pause.
func (o *Operator) Pause(ctx context.Context, destination, reason string, until time.Time) error {
	switch {
	case destination == "" || len(destination) > maxReason:
		return fmt.Errorf("admin: pause: the destination has %d bytes: name one of at most %d", len(destination), maxReason)
	case reason == "" || len(reason) > maxReason:
		return fmt.Errorf("admin: pause: the reason has %d bytes: name one of at most %d, it is recorded", len(reason), maxReason)
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
	case answer == script.ActFull:
		return ErrTooManyPauses
	case answer == script.ActState:
		return fmt.Errorf("admin: pause: until is %s, which is over by the server's clock", until.UTC().Format(time.RFC3339))
	}
	return nil
}

// Resume ends the pause of a destination, and reports whether it was paused. The step records it as the act resume.
func (o *Operator) Resume(ctx context.Context, destination string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, o.transactor.Config().CommitTimeout)
	defer cancel()
	answer, err := o.scripts.Resume(ctx, o.first(), o.act("resumed"), destination)
	if err != nil {
		return false, fmt.Errorf("admin: resume: %w", err)
	}
	return answer == script.ActDone, nil
}

// Paused lists the destinations that are paused, by name.
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

// first is the shard in which the pauses lie.
func (o *Operator) first() script.Shard { return o.scripts.Shard(o.transactor.Keyspace().Slots()[0]) }

// act names a step of its own in the audit.
func (o *Operator) act(why string) script.Act {
	return script.Act{Operation: rand.Text()[:16], Call: 1, Who: o.cfg.Name, Why: why}
}
