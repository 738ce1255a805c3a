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
		d.add("script-cache", Remark, "", "the server does not tell which scripts it keeps", "nothing is to be done: what it lacks is loaded")
		return
	}
	missing := 0
	for _, there := range loaded {
		if !there {
			missing++
		}
	}
	if missing == len(names) {
		d.add("script-cache", Remark, "", "none of this configuration's scripts is loaded", "nothing is to be done: each is loaded at its first use; if a service works there, its configuration is another")
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
		d.add("acl", Failing, "", "the user may run no scripts: "+refused.Error(), line)
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case !known:
		d.add("acl", Remark, "", "a server before 7.0 cannot be asked what a user may do", "compare: "+line)
	case len(denied) > 0:
		d.add("acl", Failing, "", "the user may not run "+strings.Join(denied, ", ")+", or the server does not know it", "ACL SETUSER <user> +"+strings.Join(denied, " +"))
	}
	return nil
}

// address checks whether the service is elsewhere, if it has no shard here.
func (d *doctor) address(ctx context.Context, severity Severity) error {
	err := d.operator.CheckAddress(ctx)
	wrong, ok := errors.AsType[*AddressError](err)
	if !ok {
		return err
	}
	remedy := "nothing is to be done if the service has not committed anything yet; else use its namespace and keyspace"
	if len(wrong.Found) > 0 {
		severity, remedy = Failing, "use one of these, or wait for the first commit of a new service"
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
			d.add("layout", Failing, "", fmt.Sprintf("%d shards, of slot %d first, belong to %q; this is %q", len(slots), slots[0], owner, o.scripts.Identity()),
				"use that layout, namespace and keyspace, or another namespace")
		}
		wrong, err := o.scripts.WrongTypes(ctx, chunk)
		if refused, ok := errors.AsType[redis.Error](err); ok {
			d.add("denied", Remark, "", "TYPE is denied: "+refused.Error(), "grant +type to who runs this")
			continue
		}
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(wrong)) {
			d.add("key-type", Failing, "", fmt.Sprintf("%q is a %s", key, wrong[key]), "find out who wrote it, and move it away or delete it: its shard cannot work")
		}
	}
	return nil
}
