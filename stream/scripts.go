package stream

import (
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
)

// Each script may be sent again after a lost reply: the second run finds the work done.
var (
	putBackScript   = redis.NewScript(lua.Script("putback", nil))
	trimScript      = redis.NewScript(lua.Script("trim", nil))
	leaseScript     = redis.NewScript(lua.Script("lease", nil))
	membersScript   = redis.NewScript(lua.Script("members", nil))
	partitionScript = redis.NewScript(lua.Script("partition", nil))
)
