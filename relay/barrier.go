package relay

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
)

// Barrier delays the publishing of an event until replicas have the commit that created it. A failover that loses the
// commit then cannot leave a published event behind. If too few replicas confirm the commit, the relay publishes nothing.
// The events wait, and no attempt counts.
type Barrier struct {
	// Replicas is the number of replicas that must have a commit before the relay publishes its events. Defaults to 0: no
	// barrier.
	Replicas int
	// Timeout is the longest time that one WAIT may take. Defaults to 1 second, or to a third of the lease if that is less. It
	// must be at least 1 ms, at most a third of the lease, and less than the client's ReadTimeout.
	Timeout time.Duration
}

func (b Barrier) withDefaults(lease time.Duration) Barrier {
	if b.Timeout == 0 {
		b.Timeout = min(time.Second, lease/3)
	}
	return b
}

func (b Barrier) validate(lease time.Duration) error {
	switch {
	case b.Replicas == 0:
		return nil
	case b.Replicas < 0:
		return fmt.Errorf("relay: Config.Barrier.Replicas is %d; use 0, or more", b.Replicas)
	case b.Timeout < time.Millisecond || b.Timeout > lease/3:
		return fmt.Errorf("relay: Config.Barrier.Timeout is %v; use 1ms to a third of Lease, %v", b.Timeout, lease/3)
	}
	return nil
}

func (b Barrier) script() eval.Durability {
	return eval.Durability{Replicas: b.Replicas, Timeout: b.Timeout}
}

// barrier is the state of a Barrier: until when it holds events back, and how often in a row the replicas were not reached.
type barrier struct {
	eval.Durability
	log *slog.Logger
	cap time.Duration

	mu    sync.Mutex
	tries int
	until time.Time
}

// note records whether enough replicas confirmed a commit. If not, it returns how long events must wait. It logs the
// beginning and the end of each outage once.
func (b *barrier) note(reached bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reached {
		if b.tries > 0 {
			b.log.Info("relay: enough replicas again", "tries", b.tries)
		}
		b.tries, b.until = 0, time.Time{}
		return 0
	}
	if b.tries == 0 {
		b.log.Error("relay: too few replicas", "replicas", b.Replicas, "waited", b.Timeout)
	}
	b.tries++
	ceiling := min(firstPause<<min(b.tries, 20), b.cap)
	pause := ceiling/2 + rand.N(ceiling/2+1)
	b.until = time.Now().Add(pause)
	return pause
}

// left returns how long the relay must not publish anything.
func (b *barrier) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return 0
	}
	return time.Until(b.until)
}

// barrierAtOnce is the number of shards for which one batch waits at a time.
const barrierAtOnce = 8

// letThrough reports whether the relay may publish the events of a claim. Otherwise, it has given them back.
func (r *Relay) letThrough(ctx context.Context, claim shard.Claim, slot int, events []leased) bool {
	if !r.barrier.On() || len(events) == 0 {
		return true
	}
	if !claim.Replicated {
		r.holdBack(ctx, slot, events)
		return false
	}
	r.barrier.note(true)
	for i := range events {
		events[i].replicated = true
	}
	return true
}

// replicated returns the events that the relay may publish: it still holds their leases, and enough replicas have their
// commits. It gives back the events that replicas lack.
func (r *Relay) replicated(ctx context.Context, events []leased) []leased {
	if !r.barrier.On() {
		return events
	}
	may, waiting := make([]bool, len(events)), make(map[int][]int)
	for i, e := range events {
		if may[i] = e.replicated; !may[i] {
			waiting[e.slot] = append(waiting[e.slot], i)
		}
	}
	var shards sync.WaitGroup
	places := make(chan struct{}, barrierAtOnce)
	for slot, which := range waiting {
		shards.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			batch := make([]leased, len(which))
			for j, i := range which {
				batch[j] = events[i]
			}
			for j, held := range r.awaitReplicas(ctx, slot, batch) {
				may[which[j]], events[which[j]] = held, batch[j]
			}
		})
	}
	shards.Wait()
	var left []leased
	for i, e := range events {
		if may[i] {
			left = append(left, e)
		}
	}
	return left
}

// awaitReplicas waits for the replicas of one shard. It returns for each event whether it may be published, or nil if none
// may. It renews the leases of the events that the relay still holds.
func (r *Relay) awaitReplicas(ctx context.Context, slot int, events []leased) []bool {
	asked, cancel := context.WithTimeout(ctx, r.cfg.Lease*2/3)
	defer cancel()
	ids := make([]shard.Held, len(events))
	for i, e := range events {
		ids[i] = shard.Held{ID: e.id, Lease: e.lease}
	}
	extended, err := r.scripts.Extend(asked, r.scripts.Shard(slot), r.cfg.Lease, ids, r.barrier.Durability)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			r.cfg.Logger.Error("relay: replica check failed", "slot", slot, "error", err)
		}
		return nil
	case !slices.Contains(extended.Held, true): // the script wrote nothing and did not wait
		return nil
	}
	moved := 0
	for i := range events {
		if events[i].lease != "" {
			r.claims.end(slot, events[i].lease)
			events[i].lease = extended.Lease
			moved++
		}
	}
	r.claims.add(slot, extended.Lease, moved, r.cfg.Lease)
	if !extended.Replicated {
		r.holdBack(ctx, slot, events)
		return nil
	}
	r.barrier.note(true)
	return extended.Held
}

// holdBack gives back events whose commits too few replicas have.
func (r *Relay) holdBack(ctx context.Context, slot int, events []leased) {
	pause := r.barrier.note(false)
	back := make([]shard.Settlement, len(events))
	for i, e := range events {
		back[i] = shard.Settlement{ID: e.id, What: settle.GiveBack, Lease: e.lease, Number: float64(pause.Milliseconds())}
	}
	r.settle(ctx, slot, back, nothing)
}
