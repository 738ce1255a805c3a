package relay

import (
	"context"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/shard"
)

// maxRounds is how many settlements of one claim take along what follows in the lanes: then others of the slot have
// their turn.
const maxRounds = 64

// publishCold claims and publishes what has become due.
func (r *Relay) publishCold(ctx, work context.Context) {
	for {
		slot, ok := r.schedule.next(ctx)
		if !ok {
			return
		}
		r.claim(ctx, work, slot)
	}
}

// claim takes one batch of a slot, publishes it, and gives the slot back: while this one is published another worker
// takes the next, where there is more than a batch. Events that were tried before do not need such haste, and a poison
// event must not take others along.
func (r *Relay) claim(ctx, work context.Context, slot int) {
	taken := time.Now()
	claim, again := r.claimSlot(ctx, slot)
	more := len(claim.Events) == r.cfg.BatchSize
	hurry := more && !slices.ContainsFunc(claim.Events, func(e shard.Claimed) bool { return e.Attempt > 1 })
	if hurry {
		r.schedule.done(slot, taken, true)
	}
	events := r.leases(slot, claim.Lease, claim.Events)
	if r.letThrough(ctx, claim, slot, events) {
		r.publish(work, taken, events, r.holdIn(ctx))
	}
	switch {
	case hurry:
	case more:
		r.schedule.done(slot, time.Now(), false)
	default:
		r.schedule.done(slot, again, false)
	}
}

// claimSlot leases one batch of a slot, and returns when to look at it again; the zero time: when a commit or a sweep says so.
func (r *Relay) claimSlot(ctx context.Context, slot int) (claim shard.Claim, again time.Time) {
	if wait := max(r.outage.left(), r.barrier.left()); wait > 0 {
		return claim, time.Now().Add(wait)
	}
	asked, cancel := context.WithTimeout(ctx, r.cfg.Lease)
	defer cancel()
	taken := time.Now()
	claim, err := r.scripts.Claim(asked, r.scripts.Shard(slot), shard.Claiming{
		Limit: r.cfg.BatchSize, Lease: r.cfg.Lease, Attempts: r.cfg.Attempts, Continues: r.cfg.OnPark == LaneContinues,
		Wait: r.barrier.Durability,
	})
	if err != nil {
		if ctx.Err() == nil {
			r.cfg.Logger.Error("relay: claim failed", "slot", slot, "error", err)
		}
		return claim, time.Now().Add(r.cfg.PauseCap)
	}
	if claim.Parked > 0 {
		r.cfg.Logger.Warn("relay: events parked: their attempts ended without an answer", "slot", slot, "events", claim.Parked)
		r.counts.parked.Add(int64(claim.Parked))
		r.cfg.Observer.crashed(ctx, r.cfg.Logger, slot, claim.Parked)
	}
	if claim.Orphans > 0 {
		r.cfg.Logger.Warn("relay: index members without a body removed", "slot", slot, "events", claim.Orphans)
	}
	if claim.Next < 0 {
		return claim, time.Time{}
	}
	return claim, taken.Add(claim.Next)
}

// holdIn says for how long what follows in a lane is leased: nobody else need look for it, but when this relay stops, or
// others of the slot have waited long enough.
func (r *Relay) holdIn(ctx context.Context) hold {
	rounds := 0
	return func() time.Duration {
		if rounds++; rounds > maxRounds || ctx.Err() != nil {
			return 0
		}
		return r.cfg.Lease
	}
}
