package ground

import "github.com/luatx/luatx"

// procedures move money like the guarded reads of tellers, but in one script on the server. The text of an effect is that
// of Effect. Its event is the one that the effect names.
var procedures = []luatx.Procedure{
	{
		Name: "transfer",
		Keys: []string{"balances", "effects", "times", "lanes", "sums"},
		Args: []string{"op", "from", "to", "amount", "branch"},
		Source: `
local left = tonumber(redis.call('HGET', balances, from) or 0) - amount
if left < 0 then abort('insufficient funds') end
redis.call('HINCRBY', balances, from, -amount)
redis.call('HINCRBY', balances, to, amount)
local n = redis.call('HINCRBY', lanes, from, 1)
redis.call('HINCRBY', sums, 'count', 1)
local id = emit({type = 'moved', source = '/bank', subject = branch, correlationid = op, partitionkey = from,
  data = {n = n}}, nil, {key = from})
redis.call('HSET', effects, op, table.concat({'move', from, to, amount, id, from, n}, ' '))
redis.call('HINCRBY', times, op, 1)
return left`,
	},
	{
		Name: "cell",
		Keys: []string{"cell", "done"},
		Args: []string{"op", "from", "to", "amount"},
		Source: `
local left = tonumber(redis.call('HGET', cell, from) or 0) - amount
if left < 0 then abort('insufficient funds') end
redis.call('HINCRBY', cell, from, -amount)
redis.call('HINCRBY', cell, to, amount)
redis.call('HSET', done, op, 1)
return left`,
	},
}
