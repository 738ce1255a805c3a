package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Role is a role of a Redis user, as docs/acl.md describes them.
type Role string

// The roles.
const (
	RoleApplication Role = "app"
	RoleRelay       Role = "relay"
	RoleOperator    Role = "operator"
	RoleRepair      Role = "repair"
)

// Roles lists the roles.
func Roles() []Role { return []Role{RoleApplication, RoleRelay, RoleOperator, RoleRepair} }

// common lists the commands of every role.
const common = "evalsha script|load time command cluster|slots asking "

// grants lists the commands that each role needs, by the first version of Redis that needs them. docs/acl.md has the optional ones.
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
		{6, 0, common + "exists zrange zrangebyscore zadd zrem zscore hget hmget hgetall hset hdel hincrby incr zrangebylex get unlink"},
	},
	RoleOperator: {
		{6, 0, common + "exists zcard zcount hlen zrange zrangebyscore zrangebylex zlexcount zscore hget hmget hgetall xrange zadd zrem hset hdel hexists hincrby incr xrevrange xadd get unlink"},
	},
	RoleRepair: {
		{6, 0, common + "exists type get pttl persist hget hmget hgetall hexists hlen zscore zrangebylex hscan zscan hset hdel zadd zrem rename unlink"},
	},
}

// commandsOf lists the fewest commands that a role needs on servers of a version of Redis, without those that handlers and
// publishers send themselves. Valkey 8 has the commands of Redis 7.2, and Valkey 9 those of 7.4.
func commandsOf(role Role, major, minor int) ([]string, error) {
	parts, ok := grants[role]
	if !ok {
		return nil, fmt.Errorf("admin: role %q does not exist; use one of %v", role, Roles())
	}
	var all []string
	for _, part := range parts {
		if slices.Compare([]int{major, minor}, []int{part.major, part.minor}) >= 0 {
			all = append(all, strings.Fields(part.commands)...)
		}
	}
	return all, nil
}

// aclOf returns a minimal ACL line of a role on servers of a version. Fill in name, password and keys.
func aclOf(role Role, major, minor int) (string, error) {
	commands, err := commandsOf(role, major, minor)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("ACL SETUSER %s reset on >PASSWORD ~NAMESPACE:* +%s", role, strings.Join(commands, " +")), nil
}

// ACL returns a minimal ACL line of a role for the service's namespace and the server's version. Fill in the name, the password,
// and the keys of handlers and publishers. If the server does not report its version, the line is for Redis 7.0.
func (o *Operator) ACL(ctx context.Context, role Role) (string, error) {
	v := [3]int{7, 0}
	if text, err := o.core.Client.Info(ctx, "server").Result(); err == nil {
		if found := compatible(parseInfo(text)); found[0] >= 6 {
			v = found
		}
	}
	line, err := aclOf(role, v[0], v[1])
	return strings.Replace(line, "NAMESPACE", o.transactor.Config().Namespace, 1), err
}
