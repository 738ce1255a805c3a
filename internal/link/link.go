// Package link gives the packages of this module access to the internals of a luatx.Transactor and an outbox.Filter, so that the
// public API need not expose them.
package link

import (
	"context"
	"errors"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// Inside is the part of a Transactor that only packages of this module use.
type Inside struct {
	// Runner runs the scripts.
	Runner *eval.Runner
	// Scripts run on the shards of the Transactor.
	Scripts *shard.Scripts
	// First is the first shard of the keyspace. It contains the keys that exist once per keyspace.
	First shard.Shard
	// TagKey returns a key of the Transactor's keyspace.
	TagKey func(tag string, parts ...string) string
	// Commits sends commits.
	Commits *commit.Sender
	// Gather begins a gathering of n handlers. Each handler runs under the gathering's Context and calls Leave when it
	// ends.
	//
	// The gathering sends the commits when all other handlers wait or have left, or after linger. With a zero linger,
	// it waits without a limit. It sends the commands of tail once, after the first commits in the same pipeline. These
	// commands carry their own errors. Then it calls the function that tail returned with them, which may be nil and must not
	// block. If nothing is committed, it does not call tail. Ctx bounds the commits.
	Gather func(ctx context.Context, n int, linger time.Duration, tail func() ([]redis.Cmder, func())) Gathering
	// NoWakeUps keeps Wake from notifying the relays of other processes.
	NoWakeUps bool
	// Processes is the list in which relays, consumers and workers register themselves. If it is nil, they do not
	// register.
	Processes *process.List
	// History stores the counts of relays, and the measurements of relays and workers.
	History *history.History

	relay atomic.Pointer[Relay]
	// unattended contains a bit for each slot whose shard got events while no relay was attached.
	unattended [slot.Count / 64]atomic.Uint64
}

// A Gathering lets messages that were read together commit together in one round trip, although each handler runs
// separately. A commit under its context waits until each of the other handlers commits or ends. Each commit is a
// separate transaction with its own outcome.
type Gathering interface {
	// Context returns a context under which the commits of luatx.Middleware gather.
	Context(parent context.Context) context.Context
	// Leave reports that a handler has ended.
	Leave()
}

// Relay is notified of commits in its process, so that it publishes their events at once.
type Relay interface {
	// Reserve takes a free slot for the events of a transaction that is about to commit. Cold relays do not claim these events
	// during the lease. If ok is false, there is no free slot, and any relay may publish the events at once.
	Reserve() (lease time.Duration, ok bool)
	// Committed passes the events of a shard to the relay. Ordered and scheduled events never belong to the committer,
	// even if a slot was reserved. Events is empty if a reserved transaction did not commit. Otherwise, the receiver
	// keeps the slice and may change it. A zero event stands for all events of the shard. Committed must not block.
	Committed(slot int, events []shard.Event, reserved bool)
}

// Attach makes a relay publish the events that the Transactor commits, and notifies it of the shards that got events before. It
// returns an error if a relay is already attached.
func (in *Inside) Attach(relay Relay) error {
	if !in.relay.CompareAndSwap(nil, &relay) {
		return errors.New("luatx: attach relay: the Transactor already has one; use one relay, or disable inline publishing in the other")
	}
	in.handOver(relay)
	return nil
}

// handOver notifies a relay of the shards that got events while no relay was attached.
func (in *Inside) handOver(relay Relay) {
	for i := range in.unattended {
		for slots := in.unattended[i].Swap(0); slots != 0; slots &= slots - 1 {
			relay.Committed(64*i+bits.TrailingZeros64(slots), []shard.Event{{}}, false)
		}
	}
}

// Detach detaches the relay.
func (in *Inside) Detach() { in.relay.Store(nil) }

// Relay returns the attached relay, or nil.
func (in *Inside) Relay() Relay {
	if relay := in.relay.Load(); relay != nil {
		return *relay
	}
	return nil
}

// Announce notifies the attached relay of events that were added to a shard's outbox outside of a transaction. If no relay is
// attached, it wakes the relays of other processes.
func (in *Inside) Announce(slot int, events ...shard.Event) {
	switch relay := in.Relay(); {
	case len(events) == 0:
	case relay != nil:
		relay.Committed(slot, events, false)
	default:
		in.Unattended(slot)
	}
}

// Unattended notes that a shard got events while no relay was attached. It wakes the relays of other processes, and notifies the
// relay that is attached next: a service may commit before its own relay listens.
func (in *Inside) Unattended(slot int) {
	in.Wake(slot)
	in.unattended[slot/64].Or(1 << (slot % 64))
	if relay := in.Relay(); relay != nil { // attached meanwhile
		in.handOver(relay)
	}
}

// Wake notifies the relays of other processes of a shard with due events. It does not wait. If the notification is lost, the
// relays find the events in their next sweep.
func (in *Inside) Wake(slot int) {
	if !in.NoWakeUps {
		in.Runner.Wake(slot)
	}
}

// Point provides access to the inside of a Transactor, which embeds a Point under an unexported name.
type Point struct{ inside *Inside }

// NewPoint returns a Point for the given inside.
func NewPoint(inside *Inside) Point { return Point{inside} }

func (p *Point) link() *Inside { return p.inside }

// Of returns the inside of a Transactor.
func Of(transactor interface{ link() *Inside }) *Inside { return transactor.link() }
