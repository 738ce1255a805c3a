package verdict

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/torture/internal/ground"
)

// tick looks at a branch at one moment. Its first key never exists: while the slot migrates it is refused.
var tick = redis.NewScript(`
local sum, least = 0, 0
local held = redis.call('HGETALL', KEYS[2])
for i = 2, #held, 2 do
  sum = sum + held[i]
  least = math.min(least, held[i])
end
local moved = redis.call('HMGET', KEYS[3], 'in', 'out', 'count')
return {sum, least, tonumber(moved[1]) or 0, tonumber(moved[2]) or 0, tonumber(moved[3]) or 0,
  redis.call('HLEN', KEYS[4]), redis.call('HLEN', KEYS[5]), redis.call('HLEN', KEYS[6])}`)

// Tick holds what must be so at every moment, whatever goes on. A branch that does not answer is left to the next tick.
func Tick(ctx context.Context, branches []ground.Branch, client redis.UniversalClient, tr *luatx.Transactor, checks *Checks) {
	for _, b := range branches {
		keys := []string{b.Void(), b.Balances(), b.Sums(), b.Effects(), b.Times(), tr.Scripts().Shard(b.Slot).Key("entries")}
		n, err := tick.Run(ctx, client, keys).Int64Slice()
		if err != nil {
			continue
		}
		sum, least, in, out, count, effects, times, entries := n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]
		where := func(what string) string { return fmt.Sprintf("at a tick, %s: %s", b.Name, what) }
		checks.Hold(Money, sum == ground.Accounts*ground.Opening+in-out, where("the accounts hold %d, with %d from and %d to others"), sum, in, out)
		checks.Hold(NoDebt, least >= 0, where("an account holds %d"), least)
		checks.Hold(AppliedOnce, count == effects && times == effects, where("%d effects, %d ids, %d counted"), effects, times, count)
		checks.Hold(OutboxSet, entries == effects, where("%d effects and %d events"), effects, entries)
	}
}
