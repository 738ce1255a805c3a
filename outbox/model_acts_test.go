package outbox_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
)

// commit commits a transaction with events, or enqueues them outside of one: all or none.
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
			if len(known) > 0 { // an id that the outbox has
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
	derived := map[string]bool{}
	var err error
	if rapid.Bool().Draw(rt, "beside") {
		_, err = m.tr.Enqueue(redistest.Soon(m.t), "a", batch...)
	} else {
		derives := rapid.SliceOfN(rapid.Bool(), len(batch), len(batch)).Draw(rt, "derives")
		_, err = m.tr.Transact(redistest.Soon(m.t), "a", func(tx *luatx.Tx) error {
			for i := range batch {
				if m.events[batch[i].ID] == nil && derives[i] {
					batch[i].ID = tx.EventID()
					derived[batch[i].ID] = true
				}
				if err := tx.Emit(batch[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	full, clash := m.refuses(batch, derived)
	var command *luatx.CommandError
	switch {
	case err == nil && !full && !clash:
		m.enter(batch, derived)
	case full && errors.Is(err, luatx.ErrOutboxFull):
	case clash && errors.As(err, &command):
	default:
		rt.Fatalf("commit of %+v: %v; full %t, known with another body %t", batch, err, full, clash)
	}
}

// refuses reports why a batch cannot be committed.
func (m *model) refuses(batch []luatx.Event, derived map[string]bool) (full, clash bool) {
	events, bytes, lanes := m.count("pending")+m.count("waiting"), m.bytes(), map[string]int{}
	for _, e := range batch {
		if known, ok := m.events[e.ID]; ok {
			clash = clash || known.body != string(e.Body)
			continue
		}
		lanes[e.Key]++
		added := modelled{body: string(e.Body), given: !derived[e.ID]}
		events, bytes = events+1, bytes+len(added.stored())
		full = full || events > modelEvents || bytes > modelBytes || m.count("parked") >= modelParked ||
			e.Key != "" && len(m.lane(e.Key))+lanes[e.Key] > modelLane
	}
	return full, clash
}

func (m *model) enter(batch []luatx.Event, derived map[string]bool) {
	for _, e := range batch {
		if _, ok := m.events[e.ID]; ok {
			continue
		}
		m.committed++
		added := &modelled{body: string(e.Body), given: !derived[e.ID], state: "pending", due: e.At.Before(time.Now()), fresh: !e.At.IsZero()}
		if e.Key != "" {
			if len(m.lane(e.Key)) > 0 {
				added.state, added.due = "waiting", false
			}
			added.key, added.sequence = e.Key, m.committed
		}
		m.events[e.ID] = added
	}
}

// leave removes an event from its lane, and returns the new head.
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

// ranOut is the score of a lease that ended in 1970.
const ranOut = "-9999999999999"

func (m *model) claim(rt *rapid.T) {
	limit := rapid.Int64Range(1, 5).Draw(rt, "limit")
	ctx := redistest.Soon(m.t)
	due, err := m.client.ZRangeByScore(ctx, m.shard.Key("pending"), &redis.ZRangeBy{Min: "-inf", Max: ranOut, Count: limit}).Result()
	redistest.Must(m.t, err)
	if len(due) == 0 {
		due, err = m.client.ZRangeByScore(ctx, m.shard.Key("pending"), &redis.ZRangeBy{Min: "0", Max: strconv.FormatInt(time.Now().UnixMilli(), 10), Count: limit}).Result()
		redistest.Must(m.t, err)
	}
	claim, err := link.Of(m.tr).Scripts.Claim(ctx, m.shard, shard.Claiming{Limit: int(limit), Lease: time.Hour, Attempts: modelBudget, Continues: m.continues})
	redistest.Must(m.t, err)
	var want, got []string
	parked, together := 0, company{limit: int(limit)}
	for _, id := range due {
		e := m.events[id]
		if e == nil || e.state != "pending" || !e.due {
			rt.Fatalf("%s is due, the model has %+v", id, e)
		}
		if e.attempts >= modelBudget {
			e.fresh = false
			m.park(id)
			parked++
			continue
		}
		if !together.joins(e) {
			continue
		}
		e.fresh = false
		e.attempts, e.former, e.lease, e.due = e.attempts+1, e.lease, claim.Lease, false
		want = append(want, fmt.Sprintf("%s %d %s", id, e.attempts, e.body))
	}
	for _, e := range claim.Events {
		got = append(got, fmt.Sprintf("%s %d %s", e.ID, e.Attempt, e.Body))
	}
	if !slices.Equal(got, want) || claim.Parked != parked || claim.Orphans != 0 {
		rt.Fatalf("claimed %q and parked %d, want %q and %d", got, claim.Parked, want, parked)
	}
}

// company models which events are claimed together. Events whose lease expired, one of which may have crashed its relay, are
// claimed in smaller and smaller batches, and alone for the last attempt.
type company struct {
	limit, taken, room int
	suspects           bool
}

func (c *company) joins(e *modelled) bool {
	suspect := e.lease != ""
	if c.taken == 0 {
		c.suspects, c.room = suspect, c.limit
	}
	if suspect != c.suspects {
		return false
	}
	if suspect {
		c.room = min(c.room, c.limit>>(2*e.attempts))
	}
	if suspect && e.attempts+1 == modelBudget {
		c.room = 1
	}
	if c.taken > 0 && c.taken >= c.room {
		return false
	}
	c.taken++
	return true
}

// settle settles events in any state, under their lease or another one.
func (m *model) settle(rt *rapid.T) {
	if len(m.events) == 0 {
		return
	}
	how := shard.Settling{Attempts: modelBudget, Base: time.Hour, Cap: time.Hour, Retention: time.Minute, Continues: m.continues}
	if rapid.Bool().Draw(rt, "hold") {
		how.Lease = time.Hour
	}
	how.KeepBody = rapid.Bool().Draw(rt, "keep")
	bodies := rapid.Bool().Draw(rt, "bodies")
	var batch []shard.Settlement
	for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(m.ids(nil)), 1, 4, rapid.ID).Draw(rt, "settled") {
		s := shard.Settlement{ID: id, Class: "refused", Error: "no\nway"}
		s.What = rapid.SampledFrom([]string{"sent", "sent", "failed", "parked", "back"}).Draw(rt, "what")
		s.Lease = rapid.SampledFrom([]string{m.events[id].lease, m.events[id].lease, "", "0", m.events[id].former}).Draw(rt, "lease")
		s.Number = rapid.SampledFrom([]float64{0, 0.9}).Draw(rt, "number")
		if s.What == "back" {
			s.Number *= 1e9 // ms
		}
		if bodies {
			s.Body, s.Given = []byte(m.events[id].body), m.events[id].given
		}
		batch = append(batch, s)
	}
	want, promoted := m.fates(batch, how.KeepBody)
	settled, err := link.Of(m.tr).Scripts.Settle(redistest.Soon(m.t), m.shard, how, batch)
	redistest.Must(m.t, err)
	if !slices.Equal(settled.Done, want) {
		rt.Fatalf("%+v: done %q, want %q", batch, settled.Done, want)
	}
	m.adopt(rt, settled, promoted, how.Lease > 0)
	maps.DeleteFunc(m.events, func(_ string, e *modelled) bool { // events that were sent long ago
		old := e.state == "sent" && e.due
		if old {
			m.ended++
		}
		return old
	})
}

// fates returns the results of a batch of settlements. Those of sent events come first.
func (m *model) fates(batch []shard.Settlement, keep bool) (want, promoted []string) {
	want = make([]string, len(batch))
	for _, sent := range []bool{true, false} {
		for i, s := range batch {
			if sent != (s.What == "sent") {
				continue
			}
			var heirs []string
			want[i], heirs = m.fate(s)
			if e := m.events[s.ID]; want[i] == "sent" {
				e.kept = keep && !e.erased
				if !e.given && !e.erased && !keep {
					delete(m.events, s.ID)
					m.ended++
				}
			}
			promoted = append(promoted, heirs...)
		}
	}
	return want, promoted
}

func (m *model) fate(s shard.Settlement) (what string, promoted []string) {
	e := m.events[s.ID]
	switch {
	case s.What == "sent" && e.state == "sent", s.What != "sent" && (e.state != "pending" || e.lease != s.Lease):
		return "stale", nil
	case s.What == "sent":
		promoted = m.leave(s.ID)
		*e = modelled{body: e.body, given: e.given, state: "sent", erased: e.erased}
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

// adopt applies the events that have become heads of their lanes.
func (m *model) adopt(rt *rapid.T, settled shard.Settled, promoted []string, hold bool) {
	var want, got []string
	for _, id := range promoted {
		e := m.events[id]
		if !hold || e == nil || e.state != "pending" || e.attempts >= modelBudget {
			continue
		}
		e.attempts, e.lease, e.due = e.attempts+1, settled.Lease, false
		want = append(want, fmt.Sprintf("%s %d", id, e.attempts))
	}
	for _, e := range settled.Promoted {
		got = append(got, fmt.Sprintf("%s %d", e.ID, e.Attempt))
	}
	slices.Sort(got) // the heads of several lanes have no order
	slices.Sort(want)
	if !slices.Equal(got, want) {
		rt.Fatalf("promoted %q, want %q", got, want)
	}
}

// operate performs an operation on events in any state.
func (m *model) operate(rt *rapid.T) {
	if len(m.events) == 0 {
		return
	}
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom(m.ids(nil)), 1, 4, rapid.ID).Draw(rt, "operated")
	m.made++
	ctx, scripts := redistest.Soon(m.t), link.Of(m.tr).Scripts
	act, home := shard.Act{Operation: fmt.Sprint("op", m.made), Call: 1, Who: "operator", Why: "test"}, m.shard
	var answer func(string, *modelled) byte
	var call func() (string, error)
	what := rapid.SampledFrom([]string{"rearm", "rearm", "discard", "erase", "replay"}).Draw(rt, "operation")
	switch what {
	case "rearm":
		answer, call = m.rearm, func() (string, error) { return scripts.Rearm(ctx, home, act, time.Time{}, "", ids) }
	case "discard":
		answer, call = m.discard, func() (string, error) { return scripts.Discard(ctx, home, act, ids) }
	case "erase":
		answer, call = m.erase, func() (string, error) { return scripts.Erase(ctx, home, act, ids) }
	case "replay":
		answer, call = m.replay, func() (string, error) { return scripts.Replay(ctx, home, act, time.Now().Add(time.Hour), ids) }
	}
	var want []byte
	for _, id := range ids {
		want = append(want, answer(id, m.events[id]))
	}
	got, err := call()
	redistest.Must(m.t, err)
	if got != string(want) {
		rt.Fatalf("%s of %q: %q, want %q", what, ids, got, want)
	}
	maps.DeleteFunc(m.events, func(_ string, e *modelled) bool { return e.state == "" })
}

// room reports whether an operator may re-arm an event.
func (m *model) room(e *modelled) bool {
	return m.count("pending")+m.count("waiting") < modelEvents && m.bytes()+len(e.body) <= modelBytes
}

func (m *model) rearm(id string, e *modelled) byte {
	switch {
	case e.state != "parked":
		return shard.ActState
	case e.erased:
		return shard.ActErased
	case !m.room(e):
		return shard.ActFull
	}
	e.state, e.attempts, e.due = "pending", 0, true
	if e.key != "" && m.lane(e.key)[0] != id {
		e.state, e.due = "waiting", false
	}
	return shard.ActDone
}

func (m *model) discard(id string, e *modelled) byte {
	if e.state != "parked" {
		return shard.ActState
	}
	m.leave(id)
	m.ended++
	e.state = "" // removed after all results are known
	return shard.ActDone
}

func (m *model) erase(id string, e *modelled) byte {
	switch {
	case e.erased, e.state == "sent" && !e.kept:
		return shard.ActErased
	case e.state == "sent":
		e.kept = false
		return shard.ActDone
	case e.lease != "" && !e.due:
		return shard.ActLeased
	}
	e.state, e.lease, e.due, e.fresh, e.erased = "parked", "", false, false, true
	m.leave(id)
	return shard.ActDone
}

func (m *model) replay(_ string, e *modelled) byte {
	switch {
	case e.state != "sent":
		return shard.ActState
	case !e.kept:
		return shard.ActNoBody
	case !m.room(e):
		return shard.ActFull
	}
	e.state, e.due, e.kept = "pending", true, false
	return shard.ActDone
}

// schedule moves or cancels an event. Only a scheduled event that was never claimed allows that.
func (m *model) schedule(rt *rapid.T) {
	if len(m.events) == 0 {
		return
	}
	id := rapid.SampledFrom(m.ids(nil)).Draw(rt, "scheduled")
	at := rapid.SampledFrom([]time.Time{{}, time.UnixMilli(1), time.Now().Add(time.Hour)}).Draw(rt, "at")
	e := m.events[id]
	want := e.fresh && e.state == "pending"
	got, err := link.Of(m.tr).Scripts.Schedule(redistest.Soon(m.t), m.shard, id, at)
	redistest.Must(m.t, err)
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

// wait lets time pass for one event: it becomes due, its lease expires, or its retention ends.
func (m *model) wait(rt *rapid.T) {
	ids := m.ids(func(e *modelled) bool { return e.state == "pending" || e.state == "sent" })
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(rt, "waits")
	e := m.events[id]
	e.due = true
	score := 1.
	if e.lease != "" { // a lease is the time of its end, so it becomes another lease
		e.former, e.lease, score = e.lease, ranOut, -9999999999999
	}
	redistest.Must(m.t, m.client.ZAddXX(redistest.Soon(m.t), m.shard.Key(e.state), redis.Z{Score: score, Member: id}).Err())
}
