package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Role is what a Redis user does, as docs/acl.md has them.
type Role string

// The roles.
const (
	RoleApplication Role = "app"
	RoleRelay       Role = "relay"
	RoleOperator    Role = "operator"
	RoleRepair      Role = "repair"
)

// Roles lists them.
func Roles() []Role { return []Role{RoleApplication, RoleRelay, RoleOperator, RoleRepair} }

// common is what every role sends.
const common = "evalsha script|load time command cluster|slots asking "

// grants are the least that each role needs, by the version from which on it does. See docs/acl.md for what is optional.
var grants = map[Role][]struct {
	major, minor int
	commands     string
}{
	RoleApplication: {
		{6, 0, common + "info hset hsetnx hget hmget hexists hlen hdel zadd zrem zcard zrange xpending xack rename unlink " +
			"hincrby getrange exists type pttl sismember zscore llen xlen set sadd srem ltrim xdel persist pexpireat dump restore memory|usage"},
		{7, 0, "pexpiretime"},
		{7, 4, "hpexpiretime hpexpireat"},
	},
	RoleRelay: {
		{6, 0, common + "exists zrange zrangebyscore zadd zrem zscore hget hmget hgetall hset hdel hincrby incr zrangebylex"},
	},
	RoleOperator: {
		{6, 0, common + "exists zcard hlen zrange zrangebylex zscore hget hmget hgetall xrange zadd zrem hset hdel hexists hincrby incr xrevrange xadd"},
	},
	RoleRepair: {
		{6, 0, common + "exists type get hget hmget hgetall hexists hlen zscore zrangebylex hscan zscan hset hdel zadd zrem unlink"},
	},
}

// Commands lists the least that a role needs on servers of a version of Redis, without what handlers and publishers send
// themselves. Valkey 8 has the commands of Redis 7.2, Valkey 9 those of 7.4.
func Commands(role Role, major, minor int) ([]string, error) {
	parts, ok := grants[role]
	if !ok {
		return nil, fmt.Errorf("admin: no role is called %q: use one of %v", role, Roles())
	}
	var all []string
	for _, part := range parts {
		if slices.Compare([]int{major, minor}, []int{part.major, part.minor}) >= 0 {
			all = append(all, strings.Fields(part.commands)...)
		}
	}
	return all, nil
}

// ACL is a minimal ACL line of a role on servers of a version; name, password and keys are to be filled in.
func ACL(role Role, major, minor int) (string, error) {
	commands, err := Commands(role, major, minor)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("ACL SETUSER %s reset on >PASSWORD ~NAMESPACE:* +%s", role, strings.Join(commands, " +")), nil
}

// ACL is a minimal ACL line of a role for the service's namespace and the server's version; name, password, and the keys
// of handlers and publishers are to be filled in. Where the server does not tell its version it is for 7.0.
func (o *Operator) ACL(ctx context.Context, role Role) (string, error) {
	v := [3]int{7, 0}
	if text, err := o.cfg.Client.Info(ctx, "server").Result(); err == nil {
		if found := compatible(parseInfo(text)); found[0] >= 6 {
			v = found
		}
	}
	line, err := ACL(role, v[0], v[1])
	return strings.Replace(line, "NAMESPACE", o.transactor.Config().Namespace, 1), err
}
