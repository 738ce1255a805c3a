package verdict

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/torture/internal/ground"
)

// atOnce reads the state of a branch atomically. Its first key never exists, so that the script is rejected while the slot
// migrates. The last number counts events without a state. Events behind others in their lanes are only in the index of
// lanes. Members with the score 1 have no event: a fault has added them.
var atOnce = redis.NewScript(`
local sum, least = 0, 0
local held = redis.call('HGETALL', KEYS[2])
for i = 2, #held, 2 do
  sum = sum + held[i]
  least = math.min(least, held[i])
end
local moved = redis.call('HMGET', KEYS[3], 'in', 'out', 'count')
local waiting, lane = 0, nil
for _, member in ipairs(redis.call('ZRANGE', KEYS[10], 0, -1)) do
  local own = string.match(member, '^%Z+')
  if own == lane then waiting = waiting + 1 end
  lane = own
end
local entries = redis.call('HLEN', KEYS[6])
local parked, sent = redis.call('ZCOUNT', KEYS[8], '(1', '+inf'), redis.call('ZCOUNT', KEYS[9], '(1', '+inf')
local left = redis.call('HGET', KEYS[11], 'left') or 0
local indexed = redis.call('ZCARD', KEYS[7]) + redis.call('ZCARD', KEYS[8]) + redis.call('ZCARD', KEYS[9])
return {sum, least, tonumber(moved[1]) or 0, tonumber(moved[2]) or 0, tonumber(moved[3]) or 0,
  redis.call('HLEN', KEYS[4]), redis.call('HLEN', KEYS[5]), entries - parked - sent + left, entries - indexed - waiting}`)

// Ticker checks the invariants that hold at every moment of the run.
type Ticker struct {
	Branches   []ground.Branch
	Client     redis.UniversalClient
	Transactor *luatx.Transactor
	Checks     *Checks
	// Patience is how long the states of a branch may not add up. Faults damage indexes, and repair takes time: it is
	// disturbed too, and its rounds take longer with more events.
	Patience time.Duration

	// Samples are the positions of the branches, in the order of their times.
	Samples []Sample

	off     map[int]damage // by branch
	longest time.Duration  // longest time for which states did not add up
}

// damage is the number of events without a state, and the time since which none of them was repaired.
type damage struct {
	missing int64
	since   time.Time
}

// Tick checks all branches. It skips branches that do not reply.
func (t *Ticker) Tick(ctx context.Context) {
	for _, b := range t.Branches {
		shard := link.Of(t.Transactor).Scripts.Shard(b.Slot)
		keys := []string{
			b.Void, b.Balances, b.Sums, b.Effects, b.Times, shard.Key("entries"),
			shard.Key("pending"), shard.Key("parked"), shard.Key("sent"), shard.Key("lanes"), shard.Key("counts"),
		}
		if n, err := atOnce.Run(ctx, t.Client, keys).Int64Slice(); err == nil {
			t.hold(b, n)
		}
		if found, _, err := link.Of(t.Transactor).Scripts.Positions(ctx, shard, 0); err == nil && len(found) == 1 {
			t.Samples = append(t.Samples, Sample{b.N, time.Now().UnixNano(), found[0].Offset})
		}
	}
}

func (t *Ticker) hold(b ground.Branch, n []int64) {
	sum, least, in, out, count, effects, times, events, missing := n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8]
	where := func(problem string) string { return fmt.Sprintf("during the run, %s: %s", b.Name, problem) }
	t.Checks.Hold(Money, sum == ground.Accounts*ground.Opening+in-out, where("the accounts hold %d, after %d from and %d to other branches"), sum, in, out)
	t.Checks.Hold(NoDebt, least >= 0, where("an account holds %d"), least)
	t.Checks.Hold(AppliedOnce, count == effects && times == effects, where("%d effects, but %d ids and a counter of %d"), effects, times, count)
	t.Checks.Hold(OutboxSet, events == effects, where("%d effects, but %d events"), effects, events)
	if t.off == nil {
		t.off = make(map[int]damage)
	}
	var off time.Duration
	switch known := t.off[b.N]; {
	case missing == 0:
		delete(t.off, b.N)
	case known.since.IsZero() || missing < known.missing: // the rest of a partial repair counts as new damage
		t.off[b.N] = damage{missing, time.Now()}
	default:
		off = time.Since(known.since)
		t.off[b.N] = damage{missing, known.since}
	}
	t.longest = max(t.longest, off)
	t.Checks.Note(StatesAddUp, "events had no state for at most %v", t.longest.Round(100*time.Millisecond))
	t.Checks.Hold(StatesAddUp, off < t.Patience, where("%d events have had no state for %v"), missing, off.Round(100*time.Millisecond))
}
