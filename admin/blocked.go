package admin

import (
	"context"
	"iter"
	"time"

	"github.com/luatx/luatx/outbox"
)

// Blocked sums up the events that wait behind a parked event of their ordering key.
type Blocked struct {
	// Keys is the number of ordering keys whose events wait, and Events the number of these events. A key counts once for each
	// shard that has such events.
	Keys   int64 `json:"keys"`
	Events int64 `json:"events"`
	// Since is when the first of these keys was blocked. It is zero if none is.
	Since time.Time `json:"since,omitzero"`
	// More reports that the sums are incomplete, because they cover only 20,000 parked events.
	More bool `json:"more,omitempty"`
}

// Blocked lists the parked events that hold back others of their ordering key, the one that was parked first first. See
// outbox.Store.Blocked, which takes a filter.
func (o *Operator) Blocked(ctx context.Context) iter.Seq2[outbox.Event, error] {
	return o.core.Store.Blocked(ctx, outbox.Filter{})
}
