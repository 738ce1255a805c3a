package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

// at returns the site with other flags. Later flags override earlier ones.
func (s site) at(flags ...string) site {
	s.flags = append(slices.Clip(s.flags), flags...)
	return s
}

// addressed lists commands that read or change a service. The next test checks the other commands of the table.
var addressed = [][]string{
	{"drain"},
	{"parked", "rearm", "1", "--yes", "--as", "alice"},
	{"inbox", "show", "begun", "--aggregate", "a", "--scope", "transact", "--source", ""},
	{"pause", "bank", "--yes", "--reason", "r", "--as", "alice"},
	{"tail", "--limit", "1"},
	{"repair", "--yes", "--retention", "24h"},
}

func TestCommandsNeedAServiceAtTheirAddressUnlessListed(t *testing.T) {
	t.Parallel()
	others := map[string]need{
		"demo": ownServer, "bench": ownServer, "keys rename": ownServer, "keys compare": newService, "parked import": newService,
		"dead list": aServer, "dead show": newService, "dead retry": newService, "dead discard": newService, "dead export": newService,
		"dead import": newService, "processes": newService, "history": newService, "triggers": newService, "scripts": newService, "serve": newService, "streams": aServer, "doctor": aServer, "completion": noServer,
	}
	for _, v := range verbs() {
		if v.needs != others[v.name] {
			t.Errorf("luatx %s needs %d, want %d", v.name, v.needs, others[v.name])
		}
	}
}

func ownServerOf(t testing.TB) *redistest.Server {
	t.Helper()
	return redistest.Single(t, redistest.Own())
}

// alone runs a test on a server and on a cluster with few namespaces.
func alone(t *testing.T, test func(t *testing.T, client redis.UniversalClient, s site)) {
	t.Helper()
	onBoth(t, ownServerOf, func(t *testing.T, client redis.UniversalClient, addr string) {
		test(t, client, newSite(t, addr).begin(client))
	})
}

func TestErrorOfAWrongNamespaceOrKeyspaceNamesTheExistingOnes(t *testing.T) {
	t.Parallel()
	alone(t, func(_ *testing.T, _ redis.UniversalClient, s site) {
		right := "found --namespace " + s.namespace + " --keyspace partitions=4"
		s.has(s.at("--namespace", "other-"+s.namespace).run(1, "", "stats"), "no shard has --namespace other-"+s.namespace, s.namespace+" --keyspace partitions=4")
		s.has(s.at("--keyspace", "partitions=5").run(1, "", "stats"), "no shard has --namespace "+s.namespace+" --keyspace partitions=5", right)
		for _, words := range addressed {
			s.has(s.at("--keyspace", "own").run(1, "", words...), right)
		}
		s.has(s.at("--keyspace", "own").acts(1, lines("network", "1"), "parked", "import", "-", "--yes"), right)
		s.has(s.at("--keyspace", "own").acts(1, "", "serve"), right)
	})
}

func TestErrorsDoNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	alone(t, func(t *testing.T, client redis.UniversalClient, s site) {
		key := "evil\x1b[2J\u009b:{" + slot.Text(0) + "}" + shard.InboxSuffix
		redistest.Must(t, client.HSet(redistest.Soon(t), key, "f", "v").Err())
		text := s.at("--namespace", "other-"+s.namespace).run(1, "", "stats")
		s.has(text, "evil·[2J·")
		if strings.ContainsAny(text, "\x1b\u009b") {
			t.Errorf("%q", text)
		}
	})
}

func TestCommandsOfANewServiceReportThatNothingWasCommitted(t *testing.T) {
	t.Parallel()
	alone(t, func(_ *testing.T, _ redis.UniversalClient, s site) {
		fresh := s.at("--namespace", "other-"+s.namespace)
		s.has(fresh.run(0, "", "scripts"), "nothing was committed here yet", "SHA1")
		s.has(fresh.acts(2, lines("network", "1"), "parked", "import", "-"), "nothing was committed here yet", "READ 1", "--yes")
		s.has(fresh.run(1, "", "stats"), "no shard")
		s.has(fresh.acts(0, lines("network", "1"), "parked", "import", "-", "--yes"), "1 1 -")
		s.has(fresh.run(0, "", "stats", "--over", "0"), "0 0 0 1 0")
	})
}

func TestDoctorNamesAWrongAddress(t *testing.T) {
	t.Parallel()
	alone(t, func(t *testing.T, _ redis.UniversalClient, s site) {
		for _, flags := range [][]string{{"--namespace", "other-" + s.namespace}, {"--keyspace", "partitions=5"}} {
			s.has(s.at(flags...).run(1, "", "doctor"), "error: address: no shard has", s.namespace+" --keyspace partitions=4", "remedy: use one of these")
		}
		for _, flags := range [][]string{{"--namespace", s.namespace}, {"--keyspace", "partitions=4"}} {
			some := s
			some.flags = slices.Concat(s.flags[:2], flags)
			text := some.run(1, "", "doctor")
			if s.has(text, "the shards were not checked; set --namespace and --keyspace"); strings.Contains(text, "address") {
				t.Errorf("luatx doctor %q examines the address of another keyspace: %s", flags, text)
			}
		}
		if text := s.run(1, "", "doctor"); strings.Contains(text, "address") {
			t.Errorf("the right address: %s", text)
		}
	})
}

// everyNode runs a command on the server, or on all nodes of the cluster.
func everyNode(t *testing.T, client redis.UniversalClient, args ...any) {
	t.Helper()
	client = redistest.AsAdmin(t, client)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		redistest.Must(t, cluster.ForEachShard(t.Context(), func(ctx context.Context, node *redis.Client) error { return node.Do(ctx, args...).Err() }))
		return
	}
	redistest.Must(t, client.Do(t.Context(), args...).Err())
}

func TestUserOfTheDocumentedACLReadsOnlyItsNamespaces(t *testing.T) {
	t.Parallel()
	onBoth(t, ownServerOf, func(t *testing.T, client redis.UniversalClient, addr string) {
		binary, err := redistest.Find()
		redistest.Must(t, err)
		rules, err := binary.Rules("operator")
		redistest.Must(t, err)
		s := newSite(t, addr).begin(client)
		user, empty := "operator-"+s.namespace, "empty-"+s.namespace
		args := []any{"ACL", "SETUSER", user, "reset", "on", ">secret", "~" + s.namespace + ":*", "~" + empty + ":*"}
		for _, rule := range rules {
			args = append(args, rule)
		}
		everyNode(t, client, args...)
		first, _, _ := strings.Cut(addr, ",")
		s = s.at("--redis", "redis://"+user+":secret@"+first)
		s.has(s.run(0, "", "stats", "--over", "0"), "PENDING")
		s.has(s.at("--keyspace", "own").run(1, "", "stats"), "found --namespace "+s.namespace+" --keyspace partitions=4")
		s.has(s.at("--namespace", empty).run(1, "", "stats"), "no shard has --namespace "+empty, "the search is incomplete: the user may not run SCAN")
		s.has(s.at("--namespace", "other").run(1, "", "stats"), "the user may not read the keys of the namespace", "NOPERM")
		s.has(s.at("--namespace", "other").run(1, "", "doctor"), "error: address", "may not read the keys")
		s.has(s.at("--namespace", empty).run(1, "", "doctor"), "warning: address", "run SCAN")

		everyNode(t, client, "ACL", "SETUSER", user, "+scan")
		s.has(s.at("--namespace", empty).run(1, "", "stats"), "--namespace "+s.namespace)
	})
}

func TestInboxShowNeedsTheWholeIdentityAndReportsIt(t *testing.T) {
	t.Parallel()
	everywhere(t, func(_ *testing.T, _ redis.UniversalClient, s site) {
		show := func(want int, words ...string) string {
			return s.run(want, "", append([]string{"inbox", "show", "begun"}, words...)...)
		}
		s.has(show(0, "--aggregate", "a", "--scope", "transact", "--source", ""), "begun yes")
		s.has(show(2, "--aggregate", "a", "--scope", "transact"), "--source is missing")
		s.has(show(2, "--scope", "transact", "--source", ""), "--aggregate is missing")
		s.has(show(2, "--aggregate", "a", "--source", ""), "set exactly one of --handler and --scope")
		s.has(show(1, "--aggregate", "a", "--handler", "h", "--source", "/s"),
			`does not have the id "begun" with the source "/s", the scope "`+s.namespace+`/h" and the aggregate "a"`, "one of these values differs")
	})
}

func TestPartitionedStreamIsFoundByItsNameAndAMissingOneIsAnError(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		keyspace := luatx.Partitions(4).WithPrefix(s.namespace)
		key := keyspace.TagKey(keyspace.Tags()[2], "orders")
		redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"f", "v"}}).Err())
		text := s.run(0, "", "streams", "orders")
		s.has(text, key+" 1 0 -")
		for _, tag := range keyspace.Tags() {
			s.has(text, keyspace.TagKey(tag, "orders"))
		}
		s.has(s.run(1, "", "drain", "orders"), key+" 1 0 -")
		s.has(s.run(1, "", "streams", "ordres", "orders"), key, `no stream has the key "ordres", and no partition of --keyspace partitions=4 --prefix `+s.namespace)
		s.has(s.run(1, "", "drain", "ordres"), "ordres")
	})
}
