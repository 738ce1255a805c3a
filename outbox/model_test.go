package outbox_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/redistest"
	"github.com/luatx/luatx/internal/script"
)

// The limits of a model's shard, so low that they are reached.
const (
	modelEvents, modelParked, modelLane, modelBudget = 16, 5, 4, 3
	modelBytes                                       = 900
)

// modelled is an event as the model knows it. Time stands still: an event is due, or will not be before the test ends.
type modelled struct {
	body     string
	state    string // pending (leased where it has a lease), waiting, sent, parked
	due      bool
	lease    string
	attempts int
	key      string // of its lane, as long as it is in there
	sequence int    // in its lane
	fresh    bool   // scheduled, and never claimed
}

// model is what a shard's outbox must hold.
type model struct {
	t         testing.TB
	tr        *luatx.Transactor
	client    redis.UniversalClient
	shard     script.Shard
	continues bool

	events    map[string]*modelled
	committed int // events, those that were committed again after their end too
	ended     int // cancelled, forgotten
	made      int
}

// TestModel drives the outbox at random, each step on the server and on a model, and holds all of the shard against the
// model after each: pending, leased, waiting, sent and parked add up to what was committed.
func TestModel(t *testing.T) {
	t.Parallel()
	rounds := 1
	if os.Getenv("LUATX_VERIFY") != "" {
		rounds = 20 // of 100 runs
	}
	client := redistest.Shared(t).Client(t)
	for range rounds {
		rapid.Check(t, func(rt *rapid.T) {
			m := newModel(t, client, rapid.Bool().Draw(rt, "continues"))
			acts := map[string]func(*rapid.T){
				"commit": m.commit, "claim": m.claim, "settle": m.settle, "rearm": m.rearm, "schedule": m.schedule, "wait": m.wait,
			}
			names := slices.Sorted(maps.Keys(acts))
			for range 60 {
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
	if err != nil {
		t.Fatal(err)
	}
	return &model{
		t: t, tr: tr, client: client, shard: tr.Scripts().Shard(tr.Keyspace().Slots()[0]),
		continues: continues, events: map[string]*modelled{},
	}
}

func (m *model) clean() {
	ctx := redistest.Soon(m.t)
	for _, name := range []string{
		"inbox:a", "entries", "pending", "attempts", "errors", "leases", "parked", "sent", "headers", "lanes", "counts",
		"parked:by", "routes", "seq",
	} {
		m.client.Del(ctx, m.shard.Key(name))
	}
}

// ids lists the events, or those that pass.
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

// lane lists the events of a lane, its head first.
func (m *model) lane(key string) []string {
	list := m.ids(func(e *modelled) bool { return e.key == key })
	slices.SortFunc(list, func(a, b string) int { return m.events[a].sequence - m.events[b].sequence })
	return list
}

func (m *model) bytes() (sum int) {
	for _, e := range m.events {
		if e.state == "pending" || e.state == "waiting" {
			sum += len(e.body)
		}
	}
	return sum
}

// commit commits a transaction of some events, or puts them into the outbox beside one: all of them, or none.
func (m *model) commit(rt *rapid.T) {
	var batch []luatx.Event
	for range rapid.IntRange(1, 3).Draw(rt, "events") {
		m.made++
		e := luatx.Event{ID: fmt.Sprint("e", m.made)}
		e.Body = []byte(fmt.Sprintf(`{"type":"t","n":"%s"}`, strings.Repeat("x", rapid.IntRange(0, 60).Draw(rt, "size"))))
		switch known := m.ids(nil); rapid.IntRange(0, 9).Draw(rt, "event") {
		case 0:
			e.At = time.Now().Add(time.Hour)
		case 1:
			e.At = time.UnixMilli(1)
		case 2:
			if len(known) > 0 { // again
				e.ID = rapid.SampledFrom(known).Draw(rt, "again")
				e.Body = []byte(m.events[e.ID].body)
			}
		case 3:
			if len(known) > 0 && rapid.Bool().Draw(rt, "clash") {
				e.ID = rapid.SampledFrom(known).Draw(rt, "other")
				e.Body = []byte(`{"other":true}`)
			}
		case 4, 5, 6, 7:
			e.Key = rapid.SampledFrom([]string{"a", "b", "a%00"}).Draw(rt, "key")
		}
		if !slices.ContainsFunc(batch, func(other luatx.Event) bool { return other.ID == e.ID }) {
			batch = append(batch, e)
		}
	}
	var err error
	if rapid.Bool().Draw(rt, "beside") {
		_, err = m.tr.Enqueue(redistest.Soon(m.t), "a", batch...)
	} else {
		_, err = m.tr.Transact(redistest.Soon(m.t), "a", func(tx *luatx.Tx) error {
			for _, e := range batch {
				if err := tx.Emit(e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	full, clash := m.refuses(batch)
	var command *luatx.CommandError
	switch {
	case err == nil && !full && !clash:
		m.enter(batch)
	case full && errors.Is(err, luatx.ErrOutboxFull):
	case clash && errors.As(err, &command):
	default:
		rt.Fatalf("commit of %+v: %v; full %t, known with another body %t", batch, err, full, clash)
	}
}

// refuses says why a batch cannot be committed.
func (m *model) refuses(batch []luatx.Event) (full, clash bool) {
	events, bytes, lanes := m.count("pending")+m.count("waiting"), m.bytes(), map[string]int{}
	for _, e := range batch {
		if known, ok := m.events[e.ID]; ok {
			clash = clash || known.body != string(e.Body)
			continue
		}
		lanes[e.Key]++
		events, bytes = events+1, bytes+len(e.Body)
		full = full || events > modelEvents || bytes > modelBytes || m.count("parked") >= modelParked ||
			e.Key != "" && len(m.lane(e.Key))+lanes[e.Key] > modelLane
	}
	return full, clash
}

func (m *model) enter(batch []luatx.Event) {
	for _, e := range batch {
		if _, ok := m.events[e.ID]; ok {
			continue
		}
		m.committed++
		added := &modelled{body: string(e.Body), state: "pending", due: e.At.Before(time.Now()), fresh: !e.At.IsZero()}
		if e.Key != "" {
			if len(m.lane(e.Key)) > 0 {
				added.state, added.due = "waiting", false
			}
			added.key, added.sequence = e.Key, m.committed
		}
		m.events[e.ID] = added
	}
}

// leave takes an event out of its lane, and returns the one that becomes its head.
func (m *model) leave(id string) []string {
	e := m.events[id]
	if e.key == "" {
		return nil
	}
	lane := m.lane(e.key)
	e.key = ""
	if lane[0] != id || len(lane) == 1 || m.events[lane[1]].state == "parked" {
		return nil
	}
	heir := m.events[lane[1]]
	heir.state, heir.due = "pending", true
	return lane[1:2]
}

func (m *model) park(id string) []string {
	e := m.events[id]
	e.state, e.lease, e.due = "parked", "", false
	if m.continues {
		return m.leave(id)
	}
	return nil
}

func (m *model) claim(rt *rapid.T) {
	limit := rapid.Int64Range(1, 5).Draw(rt, "limit")
	ctx := redistest.Soon(m.t)
	due, err := m.client.ZRangeByScore(ctx, m.shard.Key("pending"), &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(time.Now().UnixMilli(), 10), Count: limit}).Result()
	must(m.t, err)
	claim, err := m.tr.Scripts().Claim(ctx, m.shard, script.Claiming{Limit: int(limit), Lease: time.Hour, Attempts: modelBudget, Continues: m.continues})
	must(m.t, err)
	var want, got []string
	parked := 0
	for _, id := range due {
		e := m.events[id]
		if e == nil || e.state != "pending" || !e.due {
			rt.Fatalf("%s is due, the model has %+v", id, e)
		}
		e.fresh = false
		if e.attempts >= modelBudget {
			m.park(id)
			parked++
			continue
		}
		e.attempts, e.lease, e.due = e.attempts+1, claim.Lease, false
		want = append(want, fmt.Sprintf("%s %d %s", id, e.attempts, e.body))
	}
	for _, e := range claim.Events {
		got = append(got, fmt.Sprintf("%s %d %s", e.ID, e.Attempt, e.Body))
	}
	if !slices.Equal(got, want) || claim.Parked != parked || claim.Orphans != 0 {
		rt.Fatalf("claimed %q and parked %d, want %q and %d", got, claim.Parked, want, parked)
	}
}

// settle settles some events, in whichever state they are, under their lease or another.
func (m *model) settle(rt *rapid.T) {
	if len(m.events) == 0 {
		return
	}
	how := script.Settling{Attempts: modelBudget, Base: time.Hour, Cap: time.Hour, Retention: time.Minute, Continues: m.continues}
	if rapid.Bool().Draw(rt, "hold") {
		how.Lease = time.Hour
	}
	var batch []script.Settlement
	var want, promoted []string
	for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(m.ids(nil)), 1, 4, rapid.ID).Draw(rt, "settled") {
		s := script.Settlement{ID: id, Class: "refused", Error: "no\nway"}
		s.What = rapid.SampledFrom([]string{"sent", "sent", "failed", "parked", "back"}).Draw(rt, "what")
		s.Lease = rapid.SampledFrom([]string{m.events[id].lease, m.events[id].lease, "", "0"}).Draw(rt, "lease")
		s.Number = rapid.SampledFrom([]float64{0, 0.9}).Draw(rt, "number")
		if s.What == "back" {
			s.Number *= 1e9 // ms
		}
		batch = append(batch, s)
		what, heirs := m.fate(s)
		want, promoted = append(want, what), append(promoted, heirs...)
	}
	settled, err := m.tr.Scripts().Settle(redistest.Soon(m.t), m.shard, how, batch)
	must(m.t, err)
	if !slices.Equal(settled.Done, want) {
		rt.Fatalf("%+v: done %q, want %q", batch, settled.Done, want)
	}
	m.adopt(rt, settled, promoted, how.Lease > 0)
	maps.DeleteFunc(m.events, func(id string, e *modelled) bool { // sent long ago
		old := e.state == "sent" && e.due && !slices.ContainsFunc(batch, func(s script.Settlement) bool { return s.ID == id && s.What == "sent" && false })
		if old {
			m.ended++
		}
		return old
	})
}

// fate is what a settlement does.
func (m *model) fate(s script.Settlement) (what string, promoted []string) {
	e := m.events[s.ID]
	switch {
	case s.What == "sent" && e.state == "sent", s.What != "sent" && (e.state != "pending" || e.lease != s.Lease):
		return "stale", nil
	case s.What == "sent":
		promoted = m.leave(s.ID)
		*e = modelled{body: e.body, state: "sent"}
		return "sent", promoted
	}
	claimed := e.lease != ""
	if s.What == "back" {
		if claimed {
			e.attempts--
		}
		e.lease, e.due = "", s.Number == 0
		return "back", nil
	}
	e.fresh = false
	if !claimed {
		e.attempts++
	}
	e.lease = ""
	if s.What == "failed" && e.attempts < modelBudget {
		e.due = s.Number == 0
		return "failed", nil
	}
	return "parked", m.park(s.ID)
}

// adopt takes over the events that have become heads of their lanes.
func (m *model) adopt(rt *rapid.T, settled script.Settled, promoted []string, hold bool) {
	var want, got []string
	for _, id := range promoted {
		e := m.events[id]
		if !hold || e.state != "pending" || e.attempts >= modelBudget {
			continue
		}
		e.attempts, e.lease, e.due = e.attempts+1, settled.Lease, false
		want = append(want, fmt.Sprintf("%s %d", id, e.attempts))
	}
	for _, e := range settled.Promoted {
		got = append(got, fmt.Sprintf("%s %d", e.ID, e.Attempt))
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("promoted %q, want %q", got, want)
	}
}

func (m *model) rearm(rt *rapid.T) {
	if len(m.events) == 0 {
		return
	}
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom(m.ids(nil)), 1, 4, rapid.ID).Draw(rt, "re-armed")
	want := 0
	for _, id := range ids {
		e := m.events[id]
		if e.state != "parked" {
			continue
		}
		want++
		e.state, e.attempts, e.due = "pending", 0, true
		if e.key != "" && m.lane(e.key)[0] != id {
			e.state, e.due = "waiting", false
		}
	}
	got, err := m.tr.Scripts().Rearm(redistest.Soon(m.t), m.shard, ids)
	must(m.t, err)
	if got != want {
		rt.Fatalf("re-armed %d of %q, want %d", got, ids, want)
	}
}

// schedule moves or cancels an event, which only one that is scheduled and was never claimed lets happen.
func (m *model) schedule(rt *rapid.T) {
	if len(m.events) == 0 {
		return
	}
	id := rapid.SampledFrom(m.ids(nil)).Draw(rt, "scheduled")
	at := rapid.SampledFrom([]time.Time{{}, time.UnixMilli(1), time.Now().Add(time.Hour)}).Draw(rt, "at")
	e := m.events[id]
	want := e.fresh && e.state == "pending"
	got, err := m.tr.Scripts().Schedule(redistest.Soon(m.t), m.shard, id, at)
	must(m.t, err)
	if got != want {
		rt.Fatalf("%s, %+v, moved to %v: %t", id, e, at, got)
	}
	switch {
	case want && at.IsZero():
		delete(m.events, id)
		m.ended++
	case want:
		e.due = at.Before(time.Now())
	}
}

// wait lets time pass for one event: its attempt comes, its lease runs out, its retention ends.
func (m *model) wait(rt *rapid.T) {
	ids := m.ids(func(e *modelled) bool { return e.state == "pending" || e.state == "sent" })
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(rt, "waits")
	e := m.events[id]
	e.due = true
	must(m.t, m.client.ZAddXX(redistest.Soon(m.t), m.shard.Key(e.state), redis.Z{Score: 1, Member: id}).Err())
}

// check holds the shard against the model.
func (m *model) check(rt *rapid.T) {
	ctx := redistest.Soon(m.t)
	pipe := m.client.Pipeline()
	entries := pipe.HGetAll(ctx, m.shard.Key("entries"))
	pending, parked, sent := pipe.ZRange(ctx, m.shard.Key("pending"), 0, -1), pipe.ZRange(ctx, m.shard.Key("parked"), 0, -1), pipe.ZRange(ctx, m.shard.Key("sent"), 0, -1)
	leases, attempts := pipe.HGetAll(ctx, m.shard.Key("leases")), pipe.HGetAll(ctx, m.shard.Key("attempts"))
	lanes := pipe.ZRange(ctx, m.shard.Key("lanes"), 0, -1)
	counts, by := pipe.HGetAll(ctx, m.shard.Key("counts")), pipe.HGetAll(ctx, m.shard.Key("parked:by"))
	_, err := pipe.Exec(ctx)
	must(m.t, err)

	same(rt, "entries", slices.Sorted(maps.Keys(entries.Val())), m.ids(nil))
	for state, has := range map[string][]string{"pending": pending.Val(), "parked": parked.Val(), "sent": sent.Val()} {
		slices.Sort(has)
		same(rt, state, has, m.ids(func(e *modelled) bool { return e.state == state }))
	}
	for id, e := range m.events {
		switch body := entries.Val()[id]; {
		case e.state == "sent" && !strings.HasPrefix(body, "="), e.state != "sent" && body != e.body:
			rt.Fatalf("%s is %s and has the body %q", id, e.state, body)
		case leases.Val()[id] != e.lease:
			rt.Fatalf("%s has the lease %q, want %q", id, leases.Val()[id], e.lease)
		}
		if n, _ := strconv.Atoi(attempts.Val()[id]); n != e.attempts {
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
		if has, _ := strconv.Atoi(counts.Val()[name]); has != want {
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
