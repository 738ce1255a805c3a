package relay

import (
	"context"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
)

// maxRounds is the number of settlements of one claim that may lease the events that follow in the lanes. After that, the
// other events of the slot get their turn.
const maxRounds = 64

// publishCold claims and publishes events that are due.
func (r *Relay) publishCold(ctx, work context.Context) {
	for {
		slot, ok := r.schedule.next(ctx)
		if !ok {
			return
		}
		r.claim(ctx, work, slot)
	}
}

// claim leases one batch of a slot, publishes it and releases the slot. If the batch is full, it releases the slot first,
// so that another worker claims the next batch meanwhile. It does not if an event was tried before, because a poison event
// must not affect the events of another claim.
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

// claimSlot leases one batch of a slot and returns when to visit the slot again. The zero time means when a commit or a
// sweep schedules it.
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
		r.cfg.Logger.Warn("relay: events parked after unsettled attempts", "slot", slot, "events", claim.Parked)
		r.counts.parked.Add(int64(claim.Parked))
		for range claim.Parked {
			r.counter.Add("", settle.Park, "crashed")
		}
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

// holdIn returns a hold that leases the events following in a lane to this relay, until the relay stops or the other events
// of the slot have waited long enough.
func (r *Relay) holdIn(ctx context.Context) hold {
	rounds := 0
	return func() time.Duration {
		if rounds++; rounds > maxRounds || ctx.Err() != nil {
			return 0
		}
		return r.cfg.Lease
	}
}
