package admin

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
)

func TestRolesHaveEachCommandFromTheVersionThatHasIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role         Role
		command      string
		major, minor int
		by           func(role Role, major, minor int) []string
	}{
		{RoleApplication, "hincrby", 6, 0, needed},
		{RoleApplication, "pexpiretime", 7, 0, needed},
		{RoleApplication, "hpexpireat", 7, 4, needed},
		{RoleRelay, "zrangebyscore", 6, 0, needed},
		{RoleOperator, "xrevrange", 6, 0, needed},
		{RoleRepair, "hscan", 6, 0, needed},
		{RoleService, "xreadgroup", 6, 0, needed},
		{RoleService, "pexpiretime", 7, 0, needed},
		{RoleService, "hscan", 6, 0, needed},
		{RoleService, "publish", 6, 0, extrasOf},
		{RoleService, "spublish", 7, 0, extrasOf},
		{RoleService, "client|setinfo", 7, 2, extrasOf},
		{RoleService, "xcfgset", 8, 6, extrasOf},
	} {
		before := [2]int{c.major, c.minor - 1}
		if c.minor == 0 {
			before = [2]int{c.major - 1, 9}
		}
		if slices.Contains(c.by(c.role, before[0], before[1]), c.command) || !slices.Contains(c.by(c.role, c.major, c.minor), c.command) {
			t.Errorf("%s may run %s from another version than %d.%d on", c.role, c.command, c.major, c.minor)
		}
	}
	for _, role := range Roles() {
		if all := needed(role, 8, 6); len(all) == 0 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
			t.Errorf("%s: a command is there twice, or none is: %v", role, all)
		}
	}
}

func needed(role Role, major, minor int) []string {
	all, err := commandsOf(role, major, minor)
	if err != nil {
		return []string{err.Error()}
	}
	return all
}

func TestACLLineIsForTheVersionThatTheServerReports(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		info     any
		role     Role
		has, not []string
	}{
		{"redis_version:6.0.9", RoleService, []string{"+publish"}, []string{"&", "pexpiretime"}},
		{"redis_version:6.1.9", RoleService, []string{"+publish"}, []string{"&", "pexpiretime"}},
		{"redis_version:6.2.0", RoleService, []string{"resetchannels &shop:* ", "+publish"}, []string{"pexpiretime"}},
		{"redis_version:6.9.7", RoleApplication, []string{"+hincrby"}, []string{"&", "pexpiretime"}},
		{"redis_version:7.0.9", RoleApplication, []string{"+pexpiretime"}, []string{"&", "hpexpireat"}},
		{"redis_version:7.4.0", RoleApplication, []string{"+hpexpireat"}, nil},
		{"redis_version:5.9.9", RoleApplication, []string{"+pexpiretime"}, []string{"hpexpireat"}},
		{"redis_mode:cluster", RoleApplication, []string{"+pexpiretime"}, []string{"hpexpireat"}},
		{redis.ErrClosed, RoleService, []string{"+pexpiretime", "+spublish"}, []string{"hpexpireat", "client|setinfo"}},
	} {
		server := scripted.New(func(cmd []string) any {
			if strings.EqualFold(cmd[0], "info") {
				return c.info
			}
			return scripted.Status("OK")
		})
		client := server.Client(t)
		op, err := NewOperator(rig.NewUnchecked(t, client), OperatorConfig{Client: client, Name: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		line, err := op.ACL(t.Context(), c.role)
		if err != nil || !strings.HasPrefix(line, "ACL SETUSER "+string(c.role)+" reset on >PASSWORD ~") || strings.Contains(line, "NAMESPACE") {
			t.Errorf("%v: %s, %v", c.info, line, err)
		}
		line = strings.ReplaceAll(line, op.transactor.Config().Namespace, "shop")
		for _, word := range c.has {
			if !strings.Contains(line, word) {
				t.Errorf("%v: no %q in %s", c.info, word, line)
			}
		}
		for _, word := range c.not {
			if strings.Contains(line, word) {
				t.Errorf("%v: %q in %s", c.info, word, line)
			}
		}
		if line, err := op.ACL(t.Context(), "king"); err == nil || line != "" || !strings.Contains(err.Error(), `"king" does not exist`) {
			t.Errorf("an unknown role: %q, %v", line, err)
		}
	}
}
