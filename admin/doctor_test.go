package admin_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
)

// sound is the configuration of a server without problems, except for a missing replica.
var sound = []string{"appendonly yes", "appendfsync everysec", "min-replicas-to-write 1", "maxmemory-policy noeviction"}

// examined returns the doctor's findings about a server, with the rights of a client.
func examined(t testing.TB, client redis.UniversalClient, how admin.Examination) []admin.Diagnosis {
	t.Helper()
	tr, err := luatx.New(client, luatx.Config{Namespace: "shop", Keyspace: luatx.Partitions(4)})
	redistest.Must(t, err)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	found, err := op.Examine(redistest.Soon(t), how)
	redistest.Must(t, err)
	for _, d := range found {
		if d.Check == "" || d.Text == "" || d.Remedy == "" {
			t.Errorf("a diagnosis lacks a check, text or remedy: %+v", d)
		}
	}
	return found
}

// serious leaves out the vulnerabilities of the local server program, which another test covers.
func serious(found []admin.Diagnosis) []string {
	var all []string
	for _, d := range found {
		if d.Severity != admin.Remark && d.Check != "cve" {
			all = append(all, string(d.Severity)+" "+d.Check)
		}
	}
	return all
}

func TestDoctorHasOnlyRemarksAboutASoundServer(t *testing.T) {
	t.Parallel()
	master, _ := redistest.WithReplica(t, redistest.Config(sound...))
	client := master.Admin(t)
	redistest.Eventually(t, "the replica to be known", func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "connected_slaves:1")
	})
	if found := serious(examined(t, client, admin.Examination{})); len(found) > 0 {
		t.Errorf("found = %q", found)
	}
}

func TestDoctorFindsEachProblem(t *testing.T) {
	t.Parallel()
	without := func(name string, more ...string) []string {
		return append(slices.DeleteFunc(slices.Clone(sound), func(line string) bool { return strings.HasPrefix(line, name) }), more...)
	}
	for _, c := range []struct {
		name    string
		lines   []string
		prepare func(t *testing.T, server *redistest.Server) redis.UniversalClient
		want    []string
	}{
		{"evicts with a memory limit", without("maxmemory-policy", "maxmemory 100mb", "maxmemory-policy allkeys-lru"), nil, []string{"error eviction"}},
		{"evicts without a memory limit", without("maxmemory-policy", "maxmemory-policy volatile-ttl"), nil, []string{"warning eviction"}},
		{"no persistence", without("append"), nil, []string{"error persistence"}},
		{"only snapshots", without("append", "save 3600 1"), nil, []string{"warning persistence"}},
		{"no fsync", without("appendfsync", "appendfsync no"), nil, []string{"warning persistence"}},
		{"no append-only file and unreadable settings", without("append"), denied("-config"), []string{"warning persistence"}},
		{"evicts and unreadable settings", without("maxmemory-policy", "maxmemory-policy volatile-ttl"), denied("-config"), []string{"warning eviction"}},
		{"memory is full", append(slices.Clone(sound), "maxmemory 1500kb"), func(t *testing.T, server *redistest.Server) redis.UniversalClient {
			client := server.Admin(t)
			for i := 0; client.Set(t.Context(), fmt.Sprint("k", i), strings.Repeat("v", 10_000), 0).Err() == nil; i++ {
			}
			return client
		}, []string{"warning memory"}},
		{"user without hset", sound, denied("-hset"), []string{"error acl"}},
		{"user without script load", sound, denied("-script"), []string{"error acl"}},
		{"cluster without slots", append(slices.Clone(sound), "cluster-enabled yes"), nil, []string{"error cluster"}},
		{"key of a wrong type", sound, func(t *testing.T, server *redistest.Server) redis.UniversalClient {
			client := server.Admin(t)
			tr, err := luatx.New(client, luatx.Config{Namespace: "shop", Keyspace: luatx.Partitions(4)})
			redistest.Must(t, err)
			redistest.Must(t, client.Set(t.Context(), link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[2]).Key("pending"), "v", 0).Err())
			return client
		}, []string{"error key-type"}},
		{"shard of another layout", sound, func(t *testing.T, server *redistest.Server) redis.UniversalClient {
			client := server.Admin(t)
			tr, err := luatx.New(client, luatx.Config{Namespace: "shop", Keyspace: luatx.Partitions(4)})
			redistest.Must(t, err)
			redistest.Must(t, client.HSet(t.Context(), link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[2]).Key("inbox:a"), "id", "luatx 0").Err())
			return client
		}, []string{"error layout"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lines := slices.DeleteFunc(slices.Clone(c.lines), func(line string) bool { return strings.HasPrefix(line, "min-replicas") })
			server := redistest.Single(t, redistest.Config(lines...))
			var client redis.UniversalClient = server.Admin(t)
			if c.prepare != nil {
				client = c.prepare(t, server)
			}
			if c.name == "user without hset" && !server.Binary().AtLeast(7, 0) {
				t.Skip("a server before 7.0 does not report the rights of a user")
			}
			found := examined(t, client, admin.Examination{})
			got := slices.DeleteFunc(serious(found), func(text string) bool { return text == "warning replicas" }) // none has a replica
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q:\n%v", got, c.want, found)
			}
		})
	}
	t.Run("replica instead of master", func(t *testing.T) {
		t.Parallel()
		master, replica := redistest.WithReplica(t, redistest.Config("appendonly yes"))
		if got := serious(examined(t, replica.Admin(t), admin.Examination{})); !slices.Equal(got, []string{"error role"}) {
			t.Errorf("got %q", got)
		}
		if got := serious(examined(t, master.Admin(t), admin.Examination{})); !slices.Contains(got, "warning min-replicas") {
			t.Errorf("got %q", got)
		}
	})
}

func TestDoctorExaminesEveryNodeOfACluster(t *testing.T) {
	t.Parallel()
	nodes := map[string]bool{}
	for _, d := range examined(t, redistest.SharedCluster(t).Client(t), admin.Examination{NoShards: true}) {
		if d.Check == "persistence" {
			nodes[d.Node] = true
		}
	}
	if len(nodes) < 3 {
		t.Errorf("examined only the nodes %v", nodes)
	}
}

func TestDeniedCommandIsARemarkAndUnreachableServerAnError(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all", "-info", "-config").Err())
	me := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "me", "secret" })
	found := examined(t, me, admin.Examination{})
	if !slices.ContainsFunc(found, func(d admin.Diagnosis) bool { return d.Check == "denied" && d.Severity == admin.Remark }) {
		t.Errorf("found = %v", found)
	}
	redistest.Must(t, server.Kill())
	tr, err := luatx.New(me, luatx.Config{Namespace: "shop"})
	redistest.Must(t, err)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: me, Name: "alice"})
	redistest.Must(t, err)
	ctx, cancel := context.WithTimeout(redistest.Soon(t), 5*time.Second)
	defer cancel()
	if found, err := op.Examine(ctx, admin.Examination{}); err == nil {
		t.Errorf("the examination of a stopped server found %v, want an error", found)
	}
	if _, err := op.Examine(ctx, admin.Examination{Role: "king"}); err == nil || !strings.Contains(err.Error(), "king") {
		t.Errorf("unknown role: %v, want an error with its name", err)
	}
}

// TestDoctorNamesOnlyTheMissingRights checks that the doctor finds no problems for the default user and for the users of
// docs/acl.md, which have the fewest rights that work, on their own keys; and that it names a right that is taken away.
func TestDoctorNamesOnlyTheMissingRights(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	if !server.Binary().AtLeast(7, 0) {
		t.Skip("a server before 7.0 does not report the rights of a user")
	}
	rights := func(client redis.UniversalClient, role admin.Role) (texts []string) {
		for _, d := range examined(t, client, admin.Examination{Role: role}) {
			if d.Check == "acl" {
				texts = append(texts, d.Text)
			}
		}
		return texts
	}
	for _, role := range admin.Roles() {
		if got := rights(server.Admin(t), role); got != nil {
			t.Errorf("the default user as %s: %q", role, got)
		}
		granted, err := server.Binary().Rules(string(role))
		redistest.Must(t, err)
		args := []any{"ACL", "SETUSER", string(role), "reset", "on", ">secret", "~shop:*", "&shop:*", "+info", "+cluster|info", "+script|exists", "+type"}
		for _, rule := range granted {
			args = append(args, rule)
		}
		redistest.Must(t, server.Admin(t).Do(t.Context(), args...).Err())
		client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = string(role), "secret" })
		if got := rights(client, role); got != nil {
			t.Errorf("the documented user as %s: %q", role, got)
		}
		redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", string(role), "-hset").Err())
		if got := rights(client, role); len(got) != 1 || !strings.HasPrefix(got[0], "the user may not run hset, ") {
			t.Errorf("as %s without HSET: %q", role, got)
		}
	}
}

func TestDoctorRemarksThatAServiceLacksOptionalRights(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	if !server.Binary().AtLeast(7, 0) {
		t.Skip("a server before 7.0 does not report the rights of a user")
	}
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "me", "secret" })
	for rule, want := range map[string]string{
		"-zcount":       "the user lacks the optional rights zcount; ACL SETUSER <user> +zcount; ",
		"-subscribe":    "the user lacks the optional rights subscribe; ACL SETUSER <user> &shop:* +subscribe; ",
		"resetchannels": "the user lacks the optional rights subscribe, publish, ssubscribe, spublish; ACL SETUSER <user> &shop:* +subscribe +publish +ssubscribe +spublish; ",
	} {
		redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", "me", "reset", "on", ">secret", "allkeys", "allchannels", "+@all", rule).Err())
		var acl []admin.Diagnosis
		for _, d := range examined(t, client, admin.Examination{Role: admin.RoleService}) {
			if d.Check == "acl" {
				acl = append(acl, d)
			}
		}
		if len(acl) != 1 || acl[0].Severity != admin.Remark || !strings.HasPrefix(acl[0].Text+"; "+acl[0].Remedy, want) {
			t.Errorf("with the rule %s: %v, want %q", rule, acl, want)
		}
	}
}

func TestDocsGrantEveryCommandOfEachRole(t *testing.T) {
	t.Parallel()
	for _, role := range admin.Roles() {
		for _, version := range []struct {
			text         string
			major, minor int
		}{{"6.0.20", 6, 0}, {"7.0.15", 7, 0}, {"8.0.0", 8, 0}} {
			rules, err := redistest.Binary{Version: version.text}.Rules(string(role))
			redistest.Must(t, err)
			commands, err := admin.CommandsOf(role, version.major, version.minor)
			redistest.Must(t, err)
			commands = append(commands, admin.ExtrasOf(role, version.major, version.minor)...)
			for _, name := range commands {
				if !slices.Contains(rules, "+"+name) {
					t.Errorf("docs/acl.md does not grant %s to %s on %s", name, role, version.text)
				}
			}
			line, err := admin.ACLOf(role, version.major, version.minor)
			if err != nil || !strings.HasPrefix(line, "ACL SETUSER "+string(role)+" reset on ") || strings.Count(line, "+") != len(commands) {
				t.Errorf("%s, %v", line, err)
			}
		}
	}
	if _, err := admin.ACLOf("king", 7, 0); err == nil {
		t.Error("an unknown role is accepted")
	}
}

// denied returns a client whose user has all rights but one.
func denied(right string) func(t *testing.T, server *redistest.Server) redis.UniversalClient {
	return func(t *testing.T, server *redistest.Server) redis.UniversalClient {
		redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all", right).Err())
		return server.Client(t, func(o *redis.Options) { o.Username, o.Password = "me", "secret" })
	}
}
