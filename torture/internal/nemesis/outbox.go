package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/sleep"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/torture/internal/ground"
)

var outboxKinds = []kind{
	{name: "lose-index", track: "outbox", inflict: loseIndex},
	{name: "stale-lease", track: "outbox", inflict: staleLease},
}

// loseIndex damages the indexes of a shard, as eviction, an old backup or a manual change does. It leaves events in no
// index, index members without an event, and details without an event. Repair must fix all of them.
func loseIndex(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	b := n.Branches[rng.IntN(len(n.Branches))]
	shard := link.Of(n.Transactor).Scripts.Shard(b.Slot)
	done := injury{target: b.Name, branches: []int{b.N}}
	taken := 0
	for range 50 { // usually no event waits there
		members, err := n.Client.ZRange(ctx, shard.Key("pending"), 0, 2).Result()
		if err != nil {
			return done, err
		}
		for _, member := range members {
			removed, err := n.Client.ZRem(ctx, shard.Key("pending"), member).Result()
			if err != nil {
				return done, err
			}
			taken += int(removed)
			n.mu.Lock()
			n.Taken[member] = true
			n.mu.Unlock()
		}
		if taken > 2 || !sleep.For(ctx, 5*time.Millisecond) {
			break
		}
	}
	done.target = fmt.Sprintf("%s: %d events", b.Name, taken)
	orphan := fmt.Sprintf("orphan-%d", rng.Uint64())
	pipe := n.Client.Pipeline()
	pipe.ZAdd(ctx, shard.Key([]string{"pending", "parked", "sent"}[rng.IntN(3)]), redis.Z{Score: 1, Member: orphan})
	pipe.HSet(ctx, shard.Key([]string{"attempts", "errors"}[rng.IntN(2)]), orphan, "1")
	_, err := pipe.Exec(ctx)
	return done, err
}

// Settings of claims whose lease expires.
var (
	staleWork = outbox.Work{Limit: 20, Lease: 100 * time.Millisecond, SentRetention: 24 * time.Hour}
	errStale  = errors.New("settled by a stale lease")
)

// staleLease claims events, lets the lease expire, and settles the events when another relay has leased them. The
// settlement must have no effect.
func staleLease(ctx context.Context, n *Nemeses, rng *rand.Rand) (injury, error) {
	b := n.Branches[rng.IntN(len(n.Branches))]
	done := injury{target: b.Name, branches: []int{b.N}}
	until := time.Now().Add(2 * time.Second)
	for tried := 0; tried == 0 && time.Now().Before(until) && ctx.Err() == nil; {
		batch, err := n.store.Claim(ctx, b.Slot, staleWork)
		if err != nil {
			return done, err
		}
		if len(batch.Events) == 0 {
			sleep.For(ctx, 2*time.Millisecond)
			continue
		}
		mine, err := n.store.Show(ctx, b.Slot, batch.Events[0].ID)
		if err != nil || mine.State != outbox.Leased {
			return done, err
		}
		sleep.For(ctx, staleWork.Lease)
		for _, event := range batch.Events {
			was, err := n.settleStale(ctx, b, batch, mine.Lease, event.ID, rng)
			if err != nil {
				return done, err
			}
			if was {
				tried++
			}
		}
		done.target = fmt.Sprintf("%s: %d settlements", b.Name, tried)
	}
	return done, nil
}

// settleStale waits until another relay has leased an event, and then settles it. It reports whether that happened.
func (n *Nemeses) settleStale(ctx context.Context, b ground.Branch, batch outbox.Batch, mine, id string, rng *rand.Rand) (bool, error) {
	var event outbox.Event
	for until := time.Now().Add(time.Second); ; {
		var err error
		if event, err = n.store.Show(ctx, b.Slot, id); err != nil {
			return false, err
		}
		if event.State == outbox.Sent || event.State == outbox.Leased && event.Lease != mine {
			break
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return false, nil
		}
	}
	why := []error{errStale, message.Permanent(errStale), relay.Later(errStale, time.Hour)}[rng.IntN(3)]
	changed, err := n.store.Failed(ctx, batch, staleWork, outbox.Fault{ID: id, Err: why})
	if err != nil {
		return false, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Stale.Tried++
	if len(changed) > 0 && changed[0] != 0 {
		n.Stale.Changed = append(n.Stale.Changed, fmt.Sprintf("a stale lease changed event %s, which was %s", id, event.State))
	}
	return true, nil
}
