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
	// RoleService is an application, a relay and a repair worker in one process that reads one stream and publishes to others,
	// as service.New builds it.
	RoleService Role = "service"
)

// Roles lists the roles.
func Roles() []Role {
	return []Role{RoleApplication, RoleRelay, RoleOperator, RoleRepair, RoleService}
}

// common lists the commands of every role.
const common = "evalsha script|load time command cluster|slots asking "

// grant lists commands of a role from a version of Redis on.
type grant struct {
	major, minor int
	commands     string
}

// grants lists the commands that each role needs. docs/acl.md has the optional ones.
var grants = map[Role][]grant{
	RoleApplication: {
		{6, 0, common + "info hset hsetnx hget hmget hexists hlen hdel zadd zrem zcard zrange xpending xack rename unlink " +
			"hincrby getrange strlen exists type pttl sismember zscore llen xlen set sadd srem ltrim xdel persist pexpireat dump restore memory|usage"},
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
	RoleService: {
		{6, 0, "ping xread xreadgroup xclaim xrange xrevrange xgroup|create xgroup|delconsumer xinfo|consumers zremrangebyscore pexpire multi exec eval xadd zlexcount"},
	},
}

// contained lists the roles whose commands a role needs, too.
var contained = map[Role][]Role{RoleService: {RoleApplication, RoleRelay, RoleRepair}}

// extras lists the commands that a role uses by default but works without: those of wake-ups, of the history, of new connections, and
// of streams that recognize repeated events.
var extras = map[Role][]grant{
	RoleService: {
		{6, 0, "zcount subscribe publish"},
		{7, 0, "ssubscribe spublish"},
		{7, 2, "client|setinfo"},
		{8, 6, "xinfo|stream xcfgset"},
	},
}

// commandsOf lists the fewest commands that a role needs on servers of a version of Redis, without those that handlers and
// publishers send themselves. Those of a service include its publisher. Valkey 8 has the commands of Redis 7.2, and Valkey 9
// those of 7.4.
func commandsOf(role Role, major, minor int) ([]string, error) {
	if _, ok := grants[role]; !ok {
		return nil, fmt.Errorf("admin: role %q does not exist; use one of %v", role, Roles())
	}
	var all []string
	for _, r := range append(slices.Clone(contained[role]), role) {
		for _, name := range commandsFrom(grants[r], major, minor) {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all, nil
}

// extrasOf lists the commands that a role uses by default on servers of a version of Redis, but works without.
func extrasOf(role Role, major, minor int) []string { return commandsFrom(extras[role], major, minor) }

func commandsFrom(grants []grant, major, minor int) (all []string) {
	for _, g := range grants {
		if slices.Compare([]int{major, minor}, []int{g.major, g.minor}) >= 0 {
			all = append(all, strings.Fields(g.commands)...)
		}
	}
	return all
}

// aclOf returns an ACL line of a role on servers of a version, with the commands it needs and those of extras. Fill in name,
// password, namespace and keys.
func aclOf(role Role, major, minor int) (string, error) {
	commands, err := commandsOf(role, major, minor)
	if err != nil {
		return "", err
	}
	extra, channels := extrasOf(role, major, minor), ""
	if len(extra) > 0 && slices.Compare([]int{major, minor}, []int{6, 2}) >= 0 {
		channels = "resetchannels &NAMESPACE:* "
	}
	return fmt.Sprintf("ACL SETUSER %s reset on >PASSWORD ~NAMESPACE:* %s+%s", role, channels, strings.Join(append(commands, extra...), " +")), nil
}

// ACL returns a minimal ACL line of a role for the service's namespace and the server's version. Fill in the name, the password,
// and the keys of streams, handlers and publishers. The line of RoleService also has the optional commands that a service uses
// by default, and the channels of its wake-ups. If the server does not report its version, the line is for Redis 7.0.
func (o *Operator) ACL(ctx context.Context, role Role) (string, error) {
	v := [3]int{7, 0}
	if text, err := o.core.Client.Info(ctx, "server").Result(); err == nil {
		if found := compatible(parseInfo(text)); found[0] >= 6 {
			v = found
		}
	}
	line, err := aclOf(role, v[0], v[1])
	return strings.ReplaceAll(line, "NAMESPACE", o.transactor.Config().Namespace), err
}
