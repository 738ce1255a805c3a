package stream

import (
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
)

// Each script may be sent again after a lost reply: the second run finds the work done. Fetch counts a delivery for each.
var (
	acknowledgeScript = redis.NewScript(lua.Source("acknowledge"))
	deadLetterScript  = redis.NewScript(lua.Source("_time", "deadletter"))
	putBackScript     = redis.NewScript(lua.Source("putback"))
	fetchScript       = redis.NewScript(lua.Source("fetch"))
	holdScript        = redis.NewScript(lua.Source("hold"))
	dismissScript     = redis.NewScript(lua.Source("dismiss"))
	trimScript        = redis.NewScript(lua.Source("trim"))
	leaseScript       = redis.NewScript(lua.Source("_time", "_full", "lease"))
	membersScript     = redis.NewScript(lua.Source("_time", "members"))
	partitionScript   = redis.NewScript(lua.Source("partition"))
)
