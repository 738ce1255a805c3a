package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/link"
)

// scriptCache checks whether the server has the scripts. A server without any is sound, because their first use loads them.
func (d *doctor) scriptCache(ctx context.Context) {
	var names, shas []string
	for name, sha := range link.Of(d.operator.transactor).Runner.SHAs() {
		names, shas = append(names, name), append(shas, sha)
	}
	loaded, err := d.operator.core.Client.ScriptExists(ctx, shas...).Result()
	if err != nil || len(loaded) != len(names) {
		d.add("script-cache", Remark, "", "the server does not report which scripts it has cached", "no action is needed: the first use of a missing script loads it")
		return
	}
	missing := 0
	for _, there := range loaded {
		if !there {
			missing++
		}
	}
	if missing == len(names) {
		d.add("script-cache", Remark, "", "the server has cached no script of this configuration", "no action is needed: the first use of a script loads it; if a service uses this server, its configuration differs from this one")
	}
}

// rights asks the server for the commands that the user of this connection may not run.
func (d *doctor) rights(ctx context.Context) error {
	o := d.operator
	needed, err := commandsOf(d.how.Role, d.version[0], d.version[1])
	if err != nil {
		return err
	}
	slots := o.transactor.Keyspace().Slots()
	denied, known, err := o.scripts.Denied(ctx, o.scripts.Shard(slots[rand.N(len(slots))]), needed)
	line, _ := aclOf(d.how.Role, d.version[0], d.version[1])
	if refused, ok := errors.AsType[redis.Error](err); ok {
		d.add("acl", Failing, "", "the user may not run scripts: "+refused.Error(), line)
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case !known:
		d.add("acl", Remark, "", "a server before 7.0 does not report the rights of a user", "compare the rights of the user with: "+line)
	case len(denied) > 0:
		d.add("acl", Failing, "", "the user may not run "+strings.Join(denied, ", ")+", or the server does not support it", "ACL SETUSER <user> +"+strings.Join(denied, " +"))
	}
	return d.extraRights(ctx)
}

// extraRights asks the server for the commands that the role uses but works without. The user may lack the channels, too.
func (d *doctor) extraRights(ctx context.Context) error {
	extra := extrasOf(d.how.Role, d.version[0], d.version[1])
	if len(extra) == 0 {
		return nil
	}
	o := d.operator
	denied, known, err := o.scripts.Denied(ctx, o.scripts.Shard(o.transactor.Keyspace().Slots()[0]), extra)
	if err != nil || !known || len(denied) == 0 {
		return err
	}
	remedy := "ACL SETUSER <user> "
	if slices.ContainsFunc(denied, func(name string) bool {
		return strings.HasSuffix(name, "subscribe") || strings.HasSuffix(name, "publish")
	}) {
		remedy += "&" + o.transactor.Config().Namespace + ":* "
	}
	d.add("acl", Remark, "", "the user lacks the optional rights "+strings.Join(denied, ", "), remedy+"+"+strings.Join(denied, " +")+"; docs/acl.md describes the effects of missing rights")
	return nil
}

// address checks whether the service is elsewhere, if it has no shard here.
func (d *doctor) address(ctx context.Context, severity Severity) error {
	err := d.operator.CheckAddress(ctx)
	wrong, ok := errors.AsType[*AddressError](err)
	if !ok {
		return err
	}
	remedy := "no action is needed if the service has not committed anything yet; otherwise use its namespace and keyspace"
	if len(wrong.Found) > 0 {
		severity, remedy = Failing, "use one of these places, or wait for the first commit of a new service"
	} else if wrong.Incomplete != nil && severity == Remark {
		severity = Risky
	}
	d.add("address", severity, "", strings.TrimPrefix(wrong.Error(), "admin: "), remedy)
	return nil
}

// shards checks the keys of the shards that exist.
func (d *doctor) shards(ctx context.Context) error {
	o := d.operator
	slots, err := o.existing(ctx)
	switch {
	case isNoPermission(err):
		return d.address(ctx, Failing)
	case err != nil:
		return err
	case len(slots) == 0:
		return d.address(ctx, Remark)
	}
	for chunk := range slices.Chunk(slots, slotsAtOnce) {
		owners, err := o.scripts.Identities(ctx, chunk)
		if err != nil {
			return err
		}
		foreign := map[string][]int{}
		for n, owner := range owners {
			if owner != o.scripts.Identity() {
				foreign[owner] = append(foreign[owner], n)
			}
		}
		for owner, slots := range foreign {
			slices.Sort(slots)
			d.add("layout", Failing, "", fmt.Sprintf("%d shards, the first in slot %d, belong to %q; this configuration is %q", len(slots), slots[0], owner, o.scripts.Identity()),
				"use the layout, namespace and keyspace of these shards, or another namespace")
		}
		wrong, err := o.scripts.WrongTypes(ctx, chunk)
		if refused, ok := errors.AsType[redis.Error](err); ok {
			d.add("denied", Remark, "", "TYPE is denied: "+refused.Error(), "grant +type to the user of this connection")
			continue
		}
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(wrong)) {
			d.add("key-type", Failing, "", fmt.Sprintf("key %q has the wrong type %s", key, wrong[key]), "find the program that wrote the key, then rename or delete it: its shard cannot work with it")
		}
	}
	return nil
}
