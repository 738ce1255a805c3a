package outbox_test

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// The limits of a model's shard, low enough to be reached.
const (
	modelEvents, modelParked, modelLane, modelBudget = 16, 5, 4, 3
	modelBytes                                       = 900
)

// modelled is an event of the model. The clock does not move: an event is either due, or not due before the end of the
// test.
type modelled struct {
	body     string
	given    bool   // the id was given; otherwise it is derived
	state    string // pending (leased if it has a lease), waiting, sent, parked
	due      bool
	lease    string
	former   string // the previous lease, of a relay that continues late
	attempts int
	key      string // while it is in a lane
	sequence int    // in its lane
	fresh    bool   // scheduled and never claimed
	erased   bool   // the body was erased
	kept     bool   // the body was kept after the event was sent
}

// stored returns the body as the shard stores it before the event is sent.
func (e *modelled) stored() string {
	if e.given {
		return "+" + e.body
	}
	return e.body
}

// model is the expected state of a shard's outbox.
type model struct {
	t         testing.TB
	tr        *luatx.Transactor
	client    redis.UniversalClient
	shard     shard.Shard
	continues bool

	events    map[string]*modelled
	committed int // number of committed events, including repeated commits after their end
	ended     int // number of cancelled, discarded and forgotten events
	made      int
}

// TestRandomStepsKeepServerAndModelEqual compares the whole shard with the model after each step. Pending, leased, waiting,
// sent and parked events add up to the committed ones.
func TestRandomStepsKeepServerAndModelEqual(t *testing.T) {
	t.Parallel()
	rounds, steps := 1, 40
	if os.Getenv("LUATX_VERIFY") != "" {
		rounds, steps = 20, 60 // rounds of 100 runs
	}
	client := redistest.Shared(t).Client(t)
	for range rounds {
		rapid.Check(t, func(rt *rapid.T) {
			m := newModel(t, client, rapid.Bool().Draw(rt, "continues"))
			acts := map[string]func(*rapid.T){
				"commit": m.commit, "claim": m.claim, "settle": m.settle, "operate": m.operate, "schedule": m.schedule, "wait": m.wait,
			}
			names := slices.Sorted(maps.Keys(acts))
			for range steps {
				name := rapid.SampledFrom(names).Draw(rt, "act")
				acts[name](rt)
				m.check(rt)
			}
			m.clean()
		})
	}
}

func newModel(t testing.TB, client redis.UniversalClient, continues bool) *model {
	t.Helper()
	namespace := redistest.Namespace(t)
	tr, err := luatx.New(client, luatx.Config{
		Namespace: namespace, Keyspace: luatx.Partitions(1).WithPrefix(namespace),
		OutboxCapacity: modelEvents, ParkedCapacity: modelParked, LaneCapacity: modelLane, OutboxBytes: modelBytes,
	})
	redistest.Must(t, err)
	return &model{
		t: t, tr: tr, client: client, shard: link.Of(tr).Scripts.Shard(tr.Keyspace().Slots()[0]),
		continues: continues, events: map[string]*modelled{},
	}
}

func (m *model) clean() {
	ctx := redistest.Soon(m.t)
	for _, name := range []string{
		"inbox:a", "entries", "pending", "attempts", "errors", "parked", "sent", "headers", "lanes", "counts",
		"parked:by", "routes", "seq", "audit",
	} {
		m.client.Del(ctx, m.shard.Key(name))
	}
}

// ids returns the ids of all events, or of those that pass.
func (m *model) ids(pass func(*modelled) bool) []string {
	var list []string
	for _, id := range slices.Sorted(maps.Keys(m.events)) {
		if pass == nil || pass(m.events[id]) {
			list = append(list, id)
		}
	}
	return list
}

func (m *model) count(state string) int {
	return len(m.ids(func(e *modelled) bool { return e.state == state }))
}

// lane returns the events of a lane, its head first.
func (m *model) lane(key string) []string {
	list := m.ids(func(e *modelled) bool { return e.key == key })
	slices.SortFunc(list, func(a, b string) int { return m.events[a].sequence - m.events[b].sequence })
	return list
}

func (m *model) bytes() (sum int) {
	for _, e := range m.events {
		if e.state == "pending" || e.state == "waiting" {
			sum += len(e.stored())
		}
	}
	return sum
}

// isLease reports whether a score is that of the lease. For an empty lease, it reports whether the score is not a lease.
func isLease(lease string, score float64) bool {
	if lease == "" {
		return score >= 0
	}
	want, err := strconv.ParseFloat(lease, 64)
	return err == nil && score == want && score < 0
}

// check compares the shard with the model.
func (m *model) check(rt *rapid.T) {
	ctx := redistest.Soon(m.t)
	pipe := m.client.Pipeline()
	entries := pipe.HGetAll(ctx, m.shard.Key("entries"))
	pending, parked, sent := pipe.ZRangeWithScores(ctx, m.shard.Key("pending"), 0, -1), pipe.ZRange(ctx, m.shard.Key("parked"), 0, -1), pipe.ZRange(ctx, m.shard.Key("sent"), 0, -1)
	attempts := pipe.HGetAll(ctx, m.shard.Key("attempts"))
	lanes := pipe.ZRange(ctx, m.shard.Key("lanes"), 0, -1)
	counts, by := pipe.HGetAll(ctx, m.shard.Key("counts")), pipe.HGetAll(ctx, m.shard.Key("parked:by"))
	_, err := pipe.Exec(ctx)
	redistest.Must(m.t, err)

	same(rt, "entries", slices.Sorted(maps.Keys(entries.Val())), m.ids(nil))
	scores := map[string]float64{}
	for _, z := range pending.Val() {
		scores[z.Member.(string)] = z.Score
	}
	for state, has := range map[string][]string{"pending": slices.Collect(maps.Keys(scores)), "parked": parked.Val(), "sent": sent.Val()} {
		slices.Sort(has)
		same(rt, state, has, m.ids(func(e *modelled) bool { return e.state == state }))
	}
	for id, e := range m.events {
		switch body := entries.Val()[id]; {
		case e.state == "sent" && (!strings.HasPrefix(body, "=") || (len(body) > 41) != e.kept),
			e.state != "sent" && !e.erased && body != e.stored(), e.state != "sent" && e.erased && body[0] != '!':
			rt.Fatalf("%s is %s and has the body %q", id, e.state, body)
		case !isLease(e.lease, scores[id]):
			rt.Fatalf("%s has the score %f, want the lease %q", id, scores[id], e.lease)
		}
		n, err := strconv.Atoi(attempts.Val()[id])
		if err != nil && e.lease != "" {
			n = 1 // a leased event has one attempt without a counter
		}
		if n != e.attempts {
			rt.Fatalf("%s has %d attempts, want %d", id, n, e.attempts)
		}
	}
	var inLanes []string
	for _, key := range []string{"a", "a%00", "b"} {
		inLanes = append(inLanes, m.lane(key)...)
	}
	for i, member := range lanes.Val() {
		lanes.Val()[i] = member[strings.LastIndexByte(member, 0)+1:]
	}
	same(rt, "lanes", lanes.Val(), inLanes)

	unsent := m.count("pending") + m.count("waiting")
	for name, want := range map[string]int{"events": unsent, "bytes": m.bytes(), "parked": m.count("parked"), "enqueued": m.committed} {
		c := shard.Counts{Entries: int64(len(entries.Val())), Parked: int64(len(parked.Val())), Sent: int64(len(sent.Val()))}
		c.Totals = shard.CountsOf(counts.Val(), c.Events())
		if has := int(rig.CountOf(c, name)); has != want {
			rt.Fatalf("counts have %d %s, want %d", has, name, want)
		}
	}
	if sum := unsent + m.count("parked") + m.count("sent") + m.ended; sum != m.committed {
		rt.Fatalf("the states add up to %d, committed were %d", sum, m.committed)
	}
	for prefix, sum := range map[string]int{"d:": 0, "t:": 0, "c:": 0} {
		for field, n := range by.Val() {
			if more, _ := strconv.Atoi(n); strings.HasPrefix(field, prefix) {
				sum += more
			}
		}
		if sum != m.count("parked") {
			rt.Fatalf("parked:by has %v, parked are %d", by.Val(), m.count("parked"))
		}
	}
}

func same(rt *rapid.T, what string, has, want []string) {
	if !slices.Equal(has, want) {
		rt.Fatalf("%s: %q, want %q", what, has, want)
	}
}
