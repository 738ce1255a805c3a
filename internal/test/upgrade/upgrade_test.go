package upgrade

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

const root = "../../.."

var update = flag.Bool("update", false, "write "+fixture+" with the previous version; see CONTRIBUTING.md")

func TestMain(m *testing.M) { redistest.Main(m) }

// seen is the part of an actor's report that these tests read.
type seen struct {
	First     int
	Replies   map[string]int
	Published map[string]int
	Parked    []string
	Fired     []string
	Findings  []string
	Left      struct{ Pending, Leased, Waiting, Parked int }
}

// layout returns the version of the layout that this version reads and writes.
func layout(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "transactor.go"))
	redistest.Must(t, err)
	var n int
	_, rest, _ := strings.Cut(string(text), "\nconst layout = ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("transactor.go does not declare the layout: %v", err)
	}
	return n
}

func TestNewVersionFinishesWorkOfPreviousVersion(t *testing.T) {
	t.Parallel()
	actor := build(t, root)
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		namespace := redistest.Namespace(t)
		load(t, client, renamed(namespace))
		finish(t, actor, client, namespace)
	})
}

func TestShardOfAnotherLayoutIsRejectedAndUnchanged(t *testing.T) {
	t.Parallel()
	actor, now := build(t, root), layout(t)
	for _, other := range []int{now - 1, now + 1} {
		line := func(version int) string { return fmt.Sprintf("luatx %d, namespace", version) }
		t.Run(strconv.Itoa(other), func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				namespace := redistest.Namespace(t)
				load(t, client, func(text string) string { return strings.ReplaceAll(renamed(namespace)(text), line(now), line(other)) })
				was := dump(t, client, namespace)
				for _, part := range []string{"write", "finish", "alone"} {
					_, err := act(t, actor, client, namespace, part)
					if err == nil || !strings.Contains(err.Error(), line(other)) && !strings.Contains(err.Error(), "foreign") {
						t.Errorf("%s: %v", part, err)
					}
				}
				if diff := redistest.Diff(was, dump(t, client, namespace)); diff != "" {
					t.Errorf("a shard of another layout was changed:\n%s", diff)
				}
			})
		})
	}
}

func TestChangelogExplainsTheMigrationToThisLayout(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	redistest.Must(t, err)
	_, upgrading, ok := strings.Cut(string(text), "### Upgrading")
	if want := fmt.Sprintf("layout %d", layout(t)); !ok || !strings.Contains(upgrading, want) {
		t.Errorf("the section Upgrading of CHANGELOG.md does not mention %s", want)
	}
}

func TestVersionsTakeOverAndRunSideBySide(t *testing.T) {
	t.Parallel()
	if os.Getenv("LUATX_VERIFY") == "" && !*update {
		t.Skip("builds the previous version: set LUATX_VERIFY=1")
	}
	now, before := build(t, root), build(t, checkout(t))
	for _, test := range []struct{ name, first, then string }{{"upgrade", before, now}, {"downgrade", now, before}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Single(t).Client(t)
			wrote, err := act(t, test.first, client, "upgrade", "write")
			redistest.Must(t, err)
			if wrote.First != 40 || wrote.Left.Parked != 4 || wrote.Left.Leased == 0 {
				t.Fatalf("the actor wrote %+v", wrote)
			}
			if *update && test.first == before {
				redistest.Must(t, writeFixture(t.Context(), client))
			}
			finish(t, test.then, client, "upgrade")
		})
	}
	t.Run("beside", func(t *testing.T) {
		t.Parallel()
		redistest.Every(t, func(t *testing.T, client redis.UniversalClient) { beside(t, now, before, client) })
	})
}

// finish is told the kept replies, finds what was parked, fires the timers that are due, and publishes the rest.
func finish(t *testing.T, actor string, client redis.UniversalClient, namespace string) {
	t.Helper()
	done, err := act(t, actor, client, namespace, "finish")
	redistest.Must(t, err)
	var sums [4]int
	for i := range 40 {
		sums[i%4] += i
		if id := fmt.Sprintf("message-%d", i); done.Replies[id] != sums[i%4] {
			t.Errorf("%s returned %d, want %d", id, done.Replies[id], sums[i%4])
		}
	}
	parked := []string{"event-message-4", "event-message-5", "event-message-6", "event-message-7"}
	if done.First != 0 || !slices.Equal(done.Parked, parked) || !slices.Equal(done.Fired, []string{"timer-0", "timer-2", "timer-4"}) || len(done.Findings) > 0 {
		t.Errorf("committed %d again, parked %q, fired %q, findings %q", done.First, done.Parked, done.Fired, done.Findings)
	}
	assert.Equal(t, len(done.Published), 23, "published events: %v", done.Published)
	if left := done.Left; left.Pending != 8 || left.Leased+left.Waiting+left.Parked != 0 {
		t.Errorf("%+v are left, want 8 scheduled events", left)
	}
}

// beside lets both do the same at once: each transaction counts once, and each lane goes out in its order.
func beside(t *testing.T, now, before string, client redis.UniversalClient) {
	namespace := redistest.Namespace(t)
	results := make(chan seen, 2)
	for _, actor := range []string{now, before} {
		go func() {
			saw, err := act(t, actor, client, namespace, "beside")
			if err != nil {
				t.Error(err)
			}
			results <- saw
		}()
	}
	a, b := <-results, <-results
	if a.First+b.First != 400 || a.First == 0 || b.First == 0 {
		t.Errorf("the versions committed %d and %d transactions", a.First, b.First)
	}
	published, err := client.LRange(t.Context(), namespace+"-published", 0, -1).Result()
	redistest.Must(t, err)
	position := map[string]int{}
	for n, id := range slices.Backward(published) {
		position[id] = n // the first time
	}
	assert.Equal(t, len(position), 300, "published events")
	for i := 12; i+16 < 400; i++ {
		if i/4%4 != 3 {
			continue
		}
		first, next := fmt.Sprintf("event-both-%d", i), fmt.Sprintf("event-both-%d", i+16)
		if position[first] > position[next] {
			t.Errorf("%s was published before %s, which precedes it in its lane", next, first)
		}
	}
}

// checkout returns a directory with the previous version, but with the actor of this one.
func checkout(t *testing.T) string {
	t.Helper()
	ref, err := os.ReadFile("before")
	redistest.Must(t, err)
	commit := strings.TrimSpace(string(ref))
	if err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("commit %s with the previous version is not in this clone: run git fetch --unshallow", commit)
	}
	dir := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "-C", root, "archive", commit)
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	redistest.Must(t, archive.Start())
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack the previous version: %v\n%s", err, out)
	}
	redistest.Must(t, archive.Wait())
	actor := filepath.Join(dir, "internal/test/upgrade/actor")
	redistest.Must(t, os.RemoveAll(actor))
	redistest.Must(t, os.CopyFS(actor, os.DirFS("actor")))
	return dir
}

func build(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "actor")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./internal/test/upgrade/actor")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the actor in %s: %v\n%s", dir, err, out)
	}
	return program
}

// act runs a part of an actor.
func act(t *testing.T, actor string, client redis.UniversalClient, namespace, part string) (saw seen, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), actor, "-addrs", addrs(client), "-namespace", namespace, part)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return saw, fmt.Errorf("%s: %w: %s", part, err, &stderr)
	}
	return saw, json.Unmarshal(stdout.Bytes(), &saw)
}

func addrs(client redis.UniversalClient) string {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return strings.Join(cluster.Options().Addrs, ",")
	}
	return client.(*redis.Client).Options().Addr
}

// renamed gives the data another namespace: several tests share a server.
func renamed(namespace string) func(string) string {
	return func(text string) string {
		text = strings.ReplaceAll(text, `"upgrade`, `"`+namespace)
		return strings.ReplaceAll(text, "namespace upgrade,", "namespace "+namespace+",")
	}
}

func dump(t *testing.T, client redis.UniversalClient, namespace string) redistest.State {
	t.Helper()
	state, err := redistest.Dump(t.Context(), client, namespace+"*")
	redistest.Must(t, err)
	maps.DeleteFunc(state.Keys, func(key string, _ redistest.Entry) bool {
		// Relays of any layout share the sweep and the history of the namespace.
		return strings.HasSuffix(key, ":sweep") || strings.Contains(key, "}:history")
	})
	return state
}
