package relay_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/relay"
)

// calls returns how often a server has run a command.
func calls(t testing.TB, client *redis.Client, command string) int {
	t.Helper()
	stats, err := client.Info(t.Context(), "commandstats").Result()
	redistest.Must(t, err)
	found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(stats)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// TestRelaysShareTheSweepOfAllShards checks that several relays together visit every shard once per interval, not once each,
// and that the remaining relays continue when others stop.
func TestRelaysShareTheSweepOfAllShards(t *testing.T) {
	t.Parallel()
	const interval, shards, relays = 100 * time.Millisecond, 4, 5
	server := redistest.Single(t, redistest.Own())
	client, admin := server.Client(t), server.Admin(t)
	tr, out := newTransactor(t, client), newSink()
	began := time.Now()
	var stops []func()
	for range relays {
		stops = append(stops, start(t, elsewhere(t, client, tr), out, relay.Config{NoInline: true, NoWakeUps: true, SweepInterval: interval}))
	}
	redistest.Eventually(t, "ten sweeps", func() bool { return calls(t, admin, "exists") >= 10*shards })
	for _, stop := range stops[1:] {
		stop()
	}
	emit(t, tr, "a", "e")
	redistest.Eventually(t, "the event to be published", func() bool { return out.count("e") == 1 })
	redistest.Eventually(t, "ten more sweeps", func() bool { return calls(t, admin, "exists") >= 20*shards })
	seen, took := calls(t, admin, "exists"), time.Since(began)
	const published = 12 // maximum for the claim and the settlement of the event
	if most := (int(took/interval)+1)*shards + published; seen > most {
		t.Errorf("%d shards looked at in %v, want %d at most", seen, took, most)
	}
}

// TestSweepReturnsOneChunkPerPauseInOrder checks the chunks that the script returns: every chunk, in order, one per pause, with
// no backlog.
func TestSweepReturnsOneChunkPerPauseInOrder(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := newTransactor(t, client)
		scripts := link.Of(tr).Scripts
		shard := scripts.Shard(tr.Keyspace().Slots()[0])
		const pause = 20 * time.Millisecond
		began := time.Now()
		for i := range 10 {
			chunk, wait := -1, time.Duration(0)
			redistest.Eventually(t, "a chunk", func() (ok bool) {
				var err error
				if chunk, wait, err = scripts.Sweep(t.Context(), shard, pause, 3); err != nil {
					t.Fatal(err)
				}
				return chunk >= 0
			})
			if chunk != i%3 || wait < 0 || wait > pause {
				t.Fatalf("turn %d: chunk %d, the next in %v", i, chunk, wait)
			}
		}
		if took := time.Since(began); took < 8*pause {
			t.Errorf("ten turns took %v", took)
		}
		// The clock of the next server is behind.
		redistest.Must(t, client.HSet(t.Context(), shard.Key("sweep"), "at", time.Now().Add(time.Hour).UnixMilli()).Err())
		if chunk, _, err := scripts.Sweep(t.Context(), shard, pause, 3); err != nil || chunk != 1 {
			t.Errorf("chunk %d, %v", chunk, err)
		}
	})
}

func TestSweepReturnsAChunkInTheMillisecondInWhichItIsDue(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	inside, began := link.Of(newTransactor(t, client)), time.Now().Truncate(time.Second)
	const ms, pause, early = time.Millisecond, 10 * time.Millisecond, -1
	for _, step := range []struct {
		at    time.Duration
		chunk int
		wait  time.Duration
	}{
		{0, 0, pause},
		{0, early, pause},
		{9 * ms, early, ms},
		{10 * ms, 1, pause},
		{30 * ms, 2, pause}, // a pause late
		{49 * ms, 0, ms},    // less than that
	} {
		server.SetTime(began.Add(step.at))
		chunk, wait, err := inside.Scripts.Sweep(redistest.Soon(t), inside.First, pause, 3)
		redistest.Must(t, err)
		if max(chunk, early) != step.chunk || wait != step.wait {
			t.Errorf("after %v: chunk %d, the next in %v, want %+v", step.at, chunk, wait, step)
		}
	}
}

// TestRelaySweepsAloneIfSharingFails checks that every relay sweeps on its own if sharing fails, here because of a key of
// another type and of a node that is down.
func TestRelaySweepsAloneIfSharingFails(t *testing.T) {
	t.Parallel()
	t.Run("type", func(t *testing.T) {
		t.Parallel()
		client := redistest.Shared(t).Client(t)
		tr, out := newTransactor(t, client), newSink()
		for _, n := range tr.Keyspace().Slots() {
			redistest.Must(t, client.Set(t.Context(), link.Of(tr).Scripts.Shard(n).Key("sweep"), "v", 0).Err())
		}
		emit(t, tr, "a", "e")
		start(t, tr, out, relay.Config{NoInline: true, NoWakeUps: true, SweepInterval: 10 * time.Millisecond})
		redistest.Eventually(t, "the event to be published", func() bool { return out.count("e") == 1 })
	})
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.Cluster(t, redistest.Config("cluster-require-full-coverage no"))
		client := cluster.Client(t)
		tr, out := newTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(16) }), newSink()
		slots := tr.Keyspace().Slots()
		last := aggregateIn(t, tr, slots[len(slots)-1])
		emit(t, tr, last, "e")
		ctx := redistest.Soon(t)
		first, err := cluster.NodeForSlot(ctx, slots[0])
		redistest.Must(t, err)
		replica, err := cluster.ReplicaOf(ctx, first)
		redistest.Must(t, err)
		for _, server := range []*redistest.Server{replica, first} {
			redistest.Must(t, server.Kill())
		}
		start(t, tr, out, relay.Config{NoInline: true, NoWakeUps: true, SweepInterval: 10 * time.Millisecond})
		redistest.Eventually(t, "the event on another node to be published", func() bool { return out.count("e") == 1 })
	})
}

// aggregateIn returns an aggregate whose shard is in the slot.
func aggregateIn(t testing.TB, tr *luatx.Transactor, n int) string {
	t.Helper()
	for i := range 100_000 {
		aggregate := fmt.Sprint("a", i)
		if tag, err := tr.Keyspace().Tag(aggregate); err == nil && slot.OfTag(tag) == n {
			return aggregate
		}
	}
	t.Fatal("no aggregate in slot", n)
	return ""
}

// TestSweepOfEmptyShardsNeedsLittleCPUTime checks that a sweep of 16,384 empty shards by ten relays needs less than 1 % of a
// core of the server.
func TestSweepOfEmptyShardsNeedsLittleCPUTime(t *testing.T) {
	t.Parallel()
	interval := time.Minute
	if os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("takes two minutes: set LUATX_VERIFY=1")
	}
	const sweeps = 2
	server := redistest.Single(t, redistest.Own())
	admin := server.Admin(t)
	tr := newTransactor(t, server.Client(t), func(c *luatx.Config) { c.Keyspace = luatx.OwnTags() })
	var counters []*scriptCounter
	for range 10 {
		client := server.Client(t)
		counters = append(counters, countScripts(client, tr))
		start(t, elsewhere(t, client, tr), newSink(), relay.Config{NoInline: true})
	}
	swept := func() (shards int) {
		for _, ran := range counters {
			shards += 256 * ran.of("exists pending")
		}
		return shards
	}
	waitListening(t, server.Client(t), tr, 10)
	before, began := cpu(t, admin), time.Now()
	asked, done := swept(), time.After(sweeps*interval)
	<-done
	took := time.Since(began)
	share := (cpu(t, admin) - before).Seconds() / took.Seconds()
	seen := swept() - asked
	t.Logf("%d shards looked at in %v by ten relays: %.2f %% of a core", seen, took.Round(time.Second), 100*share)
	if share > 0.01 {
		t.Errorf("the sweep takes %.2f %% of a core, want 1 %% at most", 100*share)
	}
	if low, high := (sweeps*slot.Count)*9/10, (sweeps*slot.Count)*11/10; seen < low || seen > high {
		t.Errorf("%d shards looked at, want %d to %d", seen, low, high)
	}
}

// cpu returns the CPU time of a server.
func cpu(t testing.TB, client *redis.Client) time.Duration {
	t.Helper()
	info, err := client.Info(t.Context(), "cpu").Result()
	redistest.Must(t, err)
	var sum float64
	for _, found := range regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`).FindAllStringSubmatch(info, -1) {
		seconds, err := strconv.ParseFloat(found[1], 64)
		redistest.Must(t, err)
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second))
}
