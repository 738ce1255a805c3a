package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
)

// site is a service for an operator's commands.
type site struct {
	t         *testing.T
	namespace string
	flags     []string
}

func newSite(t *testing.T, addr string) site {
	t.Helper()
	namespace := redistest.Namespace(t)
	return site{t, namespace, []string{"--redis", addr, "--namespace", namespace, "--keyspace", "partitions=4", "--prefix", namespace}}
}

// run runs a command, checks its exit status, and returns its output with single spaces.
func (s site) run(want int, stdin string, words ...string) string {
	s.t.Helper()
	status, out, errs := run(redistest.Soon(s.t), stdin, append(slices.Clone(words), s.flags...)...)
	if status != want {
		s.t.Errorf("%q: status %d, want %d\n%s%s", words, status, want, out, errs)
	}
	return strings.Join(strings.Fields(out+errs), " ")
}

// acts is run with the operator alice.
func (s site) acts(want int, stdin string, words ...string) string {
	s.t.Helper()
	return s.run(want, stdin, append(slices.Clone(words), "--as", "alice")...)
}

func (s site) has(text string, wants ...string) {
	s.t.Helper()
	has(s.t, text, wants...)
}

// service returns the Transactor of the service.
func (s site) service(client redis.UniversalClient) *luatx.Transactor {
	s.t.Helper()
	tr, err := luatx.New(client, luatx.Config{Namespace: s.namespace, Keyspace: luatx.Partitions(4).WithPrefix(s.namespace)})
	redistest.Must(s.t, err)
	return tr
}

// begin commits something, so that the service exists.
func (s site) begin(client redis.UniversalClient) site {
	s.t.Helper()
	_, err := s.service(client).Transact(redistest.Soon(s.t), "a", func(*luatx.Tx) error { return nil }, luatx.WithID("begun"))
	redistest.Must(s.t, err)
	return s
}

// lines returns parked events of a class in the format of export.
func lines(class string, ids ...string) string {
	var all strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&all, `{"aggregate":"a","id":%q,"state":"parked","at":"2024-01-01T00:00:00Z","attempts":3,`+
			`"history":[{"at":"2024-01-01T00:00:00Z","attempt":3,"class":%q,"text":"no such\u001b[2J bank"}],`+
			`"body":{"specversion":"1.0","id":%q,"type":"sold","source":"/shop","destination":"bank"}}`+"\n", id, class, id)
	}
	return all.String()
}

// everywhere runs a test on one server and on a cluster.
func everywhere(t *testing.T, test func(t *testing.T, client redis.UniversalClient, s site)) {
	t.Helper()
	onBoth(t, redistest.Shared, func(t *testing.T, client redis.UniversalClient, addr string) {
		test(t, client, newSite(t, addr).begin(client))
	})
}

// onBoth runs a test on one server and on a cluster, with the value of --redis.
func onBoth(t *testing.T, server func(testing.TB) *redistest.Server, test func(t *testing.T, client redis.UniversalClient, addr string)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		single := server(t)
		test(t, single.Client(t), single.Addr())
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.SharedCluster(t)
		test(t, cluster.Client(t), strings.Join(cluster.Addrs(), ","))
	})
}

// TestOperatorRearmsAndDiscardsParkedEvents follows an operator: list parked events, find the reason, re-arm some, discard the
// rest, and read the audit.
func TestOperatorRearmsAndDiscardsParkedEvents(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ redis.UniversalClient, s site) {
		s.has(s.run(0, "", "parked", "list"), "no parked event")
		s.has(s.acts(0, lines("http_422", "1", "2", "3")+lines("network", "4", "5"), "parked", "import", "-", "--yes"), "5 5 -")
		s.has(s.acts(0, lines("http_422", "1"), "parked", "import", "-", "--yes"), "1 0 known=1")
		s.has(s.run(0, "", "stats", "--over", "1ms"), "0 0 0 5 0", "3 http_422", "2 network", "5 bank")
		s.has(s.run(0, "", "parked", "list", "--class", "network"), " 4 parked 2024", " 5 parked", "no such·[2J bank")
		if text := s.run(0, "", "parked", "list", "--class", "network"); strings.Contains(text, "http_422") {
			t.Errorf("the filter means all: %s", text)
		}
		s.has(s.run(0, "", "parked", "list", "--limit", "2"), "there are more")
		shown := s.run(0, "", "parked", "show", "1")
		s.has(shown, "state parked", "attempts 3", "attempt 3 2024-01-01T00:00:00Z http_422 no such")
		if strings.Contains(shown, "specversion") {
			t.Errorf("the body is shown: %s", shown)
		}
		s.has(s.acts(0, "", "parked", "show", "1", "--body"), "specversion")
		s.has(s.run(1, "", "parked", "show", "nobody"), `"nobody"`)

		s.has(s.acts(2, "", "parked", "rearm", "--class", "http_422"), "3 0 0", "--yes")
		s.has(s.run(0, "", "stats", "--over", "0"), "0 0 0 5 0")
		s.has(s.acts(0, "", "parked", "rearm", "--class", "http_422", "--yes"), "3 3 0")
		s.has(s.acts(0, "", "parked", "rearm", "4", "--yes"), "1 1 0")
		s.has(s.acts(1, "", "parked", "rearm", "4", "--yes"), "0 of 1 were re-armed")
		s.has(s.run(0, "", "stats", "--over", "0"), "4 0 0 1 0")

		s.has(s.acts(2, "", "parked", "discard", "5"), "--reason")
		s.has(s.acts(2, "", "parked", "discard", "--reason", "old", "--yes"), "--all")
		s.has(s.acts(2, "", "parked", "discard", "5", "--reason", "old"), " 5 parked", "1 0 network=1", "--yes")
		s.has(s.run(0, "", "stats", "--over", "0"), "4 0 0 1 0")
		s.has(s.run(1, "", "drain"), "4 0 0 1")
		s.has(s.acts(0, "", "parked", "discard", "5", "--reason", "old", "--yes"), "1 1 network=1")
		s.has(s.acts(1, "", "parked", "discard", "5", "--reason", "old", "--yes"), "0 of 1")
		s.has(s.run(0, "", "stats", "--over", "0"), "4 0 0 0 0")
		s.has(s.run(0, "", "audit"), "alice import 5", "alice read 1", "alice rearm 3", "alice discard 1", "old")
	})
}

func TestExportNeverOverwritesAndIsImportedUnchanged(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ redis.UniversalClient, s site) {
		s.acts(0, lines("network", "1", "2"), "parked", "import", "-", "--yes")
		name := filepath.Join(t.TempDir(), "parked.jsonl")
		s.has(s.acts(0, "", "parked", "export", "-o", name), "EXPORTED 2")
		s.has(s.acts(2, "", "parked", "export", "-o", name), "exists")
		status, out, _ := run(redistest.Soon(t), "", append([]string{"parked", "export", "--as", "alice"}, s.flags...)...)
		text, err := os.ReadFile(name)
		if err != nil || status != 0 || string(text) != out || strings.Count(out, "\n") != 2 {
			t.Errorf("%v: the file holds %s, printed was %s", err, text, out)
		}
		s.acts(0, "", "parked", "discard", "--all", "--reason", "moved", "--yes")
		s.has(s.acts(0, "", "parked", "import", name, "--yes"), "2 2 -")
	})
}

func TestInboxCommandsShowAndForgetIDs(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		tr := s.service(client)
		apply := func(want luatx.Outcome) {
			t.Helper()
			result, err := tr.Transact(redistest.Soon(t), "a", func(*luatx.Tx) error { return nil }, luatx.WithID("m1"))
			if err != nil || result.Outcome != want {
				t.Errorf("%v, %v", result.Outcome, err)
			}
		}
		message := []string{"m1", "--aggregate", "a", "--scope", "transact", "--source", ""}
		show, forget := append([]string{"inbox", "show"}, message...), append([]string{"inbox", "forget"}, message...)
		s.has(s.run(1, "", show...), "m1 no")
		apply(luatx.Committed)
		s.has(s.run(0, "", show...), "m1 yes")
		s.has(s.run(1, "", "inbox", "show", "m1", "--aggregate", "i", "--scope", "transact", "--source", ""), "m1 no", `the aggregate "i"`) // of the same shard
		s.has(s.acts(2, "", forget...), "--reason")
		s.has(s.acts(2, "", append(forget, "--reason", "lost")...), "m1 yes", "--yes")
		apply(luatx.Duplicate)
		s.has(s.acts(0, "", append(forget, "--reason", "lost", "--yes")...), "FORGOTTEN m1")
		apply(luatx.Committed)
		s.acts(0, "", append(forget, "--reason", "lost", "--yes")...)
		s.has(s.acts(1, "", append(forget, "--reason", "lost", "--yes")...), "does not have")
		s.has(s.run(0, "", "audit"), "alice forget 1", "lost")
	})
}

func TestRepairDryRunChangesNothingAndFixNeedsYesAndRetention(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		s.acts(0, lines("network", "1"), "parked", "import", "-", "--yes")
		tr := s.service(client)
		tag, _ := tr.Keyspace().Tag("a")
		slot := slices.IndexFunc(tr.Keyspace().Tags(), func(other string) bool { return other == tag })
		pending := link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[slot]).Key("pending")
		client.ZAdd(t.Context(), pending, redis.Z{Score: 1, Member: "ghost"})
		s.has(s.run(2, "", "repair", "--retention", "24h"), "ghost", "1 found, 0 settled", "nothing was changed; with --yes it would settle 1 finding")
		s.has(s.run(2, "", "repair", "--dry-run"), "--retention")
		s.has(s.run(1, "", "repair", "--dry-run", "--retention", "24h"), "ghost", "1 found, 0 settled")
		if client.ZCard(t.Context(), pending).Val() != 1 {
			t.Error("the dry run has repaired")
		}
		s.has(s.run(0, "", "repair", "--yes", "--retention", "24h"), "ghost", "1 found, 1 settled")
		s.has(s.run(0, "", "repair", "--yes", "--retention", "24h"), "0 found")
	})
}

func TestReadingCommandsPrintTheStateOfTheService(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		key := "{" + redistest.Tag(t) + "}:in"
		client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"f", "v"}})
		client.XGroupCreate(t.Context(), key, "readers", "0")
		client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "readers", Consumer: "bob", Streams: []string{key, ">"}})
		s.has(s.run(0, "", "streams", key), key+" 1 0 readers", "bob 1")
		s.has(s.run(1, "", "drain", key), "readers")
		s.has(s.run(0, "", "drain"), "nothing is left")
		s.has(s.run(0, "", "scripts"), "NAME SHA1 LOADED", "commit", "forget")
		s.has(s.run(0, "", "doctor", "--acl", "--role", "relay"), "ACL SETUSER relay reset on >PASSWORD ~"+s.namespace+":* +evalsha")
		s.has(s.run(0, "", "doctor", "--acl", "--role", "service"), "ACL SETUSER service reset on >PASSWORD ~"+s.namespace+":* ", "+xreadgroup", "+zrangebyscore", "+hscan")
		s.has(s.run(2, "", "doctor", "--role", "king"), "king")
		s.has(s.run(1, "", "doctor"), "error: persistence", "remedy: set appendonly yes")
	})
}

func TestScriptsListsTheCompiledPlansOfAService(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		s.has(s.run(0, "", "scripts", "--plans"), "no plan is compiled")
		service, err := luatx.New(client, luatx.Config{Namespace: s.namespace, Keyspace: luatx.Partitions(4)})
		redistest.Must(t, err)
		hash, err := service.Keyspace().Key("a", "hash")
		redistest.Must(t, err)
		commit := func() {
			_, err := service.Transact(t.Context(), "a", func(tx *luatx.Tx) error {
				return luatx.Queued(tx.Pipeline().HSet(t.Context(), hash, "f", "v"))
			})
			redistest.Must(t, err)
		}
		for range 100 {
			commit()
		}
		var listed string
		redistest.Eventually(t, "a plan is listed", func() bool {
			listed = s.run(0, "", "scripts", "--plans")
			return strings.Contains(listed, "HSET with 3 arguments")
		})
		s.has(listed, "HITS LEFT SHA1 BATCH-SHA1 PLAN 0 0 ")
		for range 4096 {
			commit()
		}
		redistest.Eventually(t, "its use is listed", func() bool { return strings.Contains(s.run(0, "", "scripts", "--plans"), "PLAN 4096 0 ") })
	})
}

func TestTailPrintsEventsThatAreParkedWhileItRuns(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := newSite(t, server.Addr()).begin(server.Client(t))
	done := make(chan string, 1)
	ctx, cancel := context.WithCancel(redistest.Soon(t))
	defer cancel()
	go func() {
		_, out, _ := run(ctx, "", append([]string{"tail", "--every", "5ms", "--limit", "1", "--json"}, s.flags...)...)
		done <- out
	}()
	for i := 0; ; i++ { // until it checks
		now := lines("network", fmt.Sprint(i))
		now = strings.Replace(now, `"at":"2024-01-01T00:00:00Z","attempts"`, `"at":"`+server.Client(t).Time(ctx).Val().UTC().Format("2006-01-02T15:04:05.999Z")+`","attempts"`, 1)
		s.acts(0, now, "parked", "import", "-", "--yes")
		select {
		case out := <-done:
			if !strings.Contains(out, `"state":"parked"`) || !strings.Contains(out, `"class":"network"`) || strings.Count(out, "\n") != 1 {
				t.Errorf("it tells %s", out)
			}
			return
		default:
		}
	}
}

func TestEachLineOfJSONOutputIsAnObject(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := newSite(t, server.Addr())
	s.acts(0, lines("network", "1", "2"), "parked", "import", "-", "--yes")
	redistest.Must(t, server.Client(t).XAdd(t.Context(), &redis.XAddArgs{Stream: s.namespace + ":in", Values: []string{"f", "v"}}).Err())
	for _, words := range []string{
		"stats --over 1ms", "drain", "parked list", "parked show 1 --body --as me", "parked rearm --all --as me", "parked rearm 1 --as me", "parked discard --all --reason r --as me", "parked export --as me",
		"inbox show 1 --aggregate a --handler h --source /s", "audit", "streams " + s.namespace + ":in", "repair --dry-run --retention 24h", "doctor", "doctor --acl", "scripts",
		"parked rearm 1 --yes --as me", "parked discard 2 --reason r --yes --as me", "pause bank --reason r --yes --as me", "paused", "timers stats", "resume bank --as me", "resume bank --yes --as me",
	} {
		_, out, _ := run(redistest.Soon(t), "", append(append(strings.Fields(words), "--json"), s.flags...)...)
		n := 0
		for line := range strings.Lines(out) {
			var object map[string]any
			if err := json.Unmarshal([]byte(line), &object); err != nil || len(object) == 0 {
				t.Errorf("luatx %s prints %q: %v", words, line, err)
			}
			for name := range object {
				if strings.ToLower(name) != name {
					t.Errorf("luatx %s: the name %q", words, name)
				}
			}
			n++
		}
		if n == 0 && !strings.HasPrefix(words, "repair") {
			t.Errorf("luatx %s prints nothing", words)
		}
	}
}

func TestEnvironmentNamesServerAndService(t *testing.T) {
	addr := redistest.Shared(t).Addr()
	host, port, _ := strings.Cut(addr, ":")
	for _, env := range []map[string]string{
		{"REDIS_URL": "redis://" + addr}, {"REDIS_ADDR": addr}, {"REDIS_HOST": host, "REDIS_PORT": port},
	} {
		t.Run("", func(t *testing.T) {
			for _, name := range []string{"REDIS_URL", "REDIS_ADDR", "REDIS_HOST", "REDIS_PORT", "REDIS_USERNAME", "REDIS_PASSWORD"} {
				t.Setenv(name, env[name])
			}
			s := newSite(t, addr).begin(redistest.Shared(t).Client(t))
			t.Setenv("LUATX_NAMESPACE", s.namespace)
			t.Setenv("LUATX_KEYSPACE", "partitions=4")
			if status, out, errs := run(redistest.Soon(t), "", "stats", "--over", "0"); status != 0 {
				t.Errorf("status %d: %s%s", status, out, errs)
			}
		})
	}
}

func TestCompletionListsEveryCommandAndItsFlags(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		status, out, errs := run(t.Context(), "", "completion", shell)
		if status != 0 || errs != "" {
			t.Errorf("%s: status %d, %s", shell, status, errs)
		}
		for _, v := range verbs() {
			for word := range strings.FieldsSeq(v.name) {
				if !strings.Contains(out, word) {
					t.Errorf("%s does not know %s", shell, v.name)
				}
			}
		}
		if !strings.Contains(out, "max-parked-again") {
			t.Errorf("%s knows no flags", shell)
		}
	}
}
