package repair_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
)

// state is the content of a shard, read with plain commands.
type state struct {
	types  map[string]string
	hashes map[string]map[string]string
	zsets  map[string]map[string]float64
	large  map[string]largeBody // by name
	seq    string
	now    time.Time
}

// largeBody is a body in its own key.
type largeBody struct {
	text    string
	there   bool
	expires bool
}

// reference is the entry of a large body.
var reference = regexp.MustCompile(`^(=[0-9a-f]{40})?\+?~([0-9]+) (.*)$`)

var wantedTypes = map[string]string{
	"void": "none", "inbox:a": "hash", "inbox:b": "hash", "results": "hash", "results:b": "hash", "entries": "hash",
	"pending": "zset", "parked": "zset", "sent": "zset", "attempts": "hash", "errors": "hash",
	"broken": "hash", "seq": "string", "repair": "hash", "due": "zset", "decided": "zset", "headers": "hash", "lanes": "zset",
	"routes": "hash", "counts": "hash", "parked:by": "hash", "audit": "stream",
	"sweep": "hash", "pauses": "hash", "bodies": "hash", "positions": "hash", "generations": "hash",
}

func (s *shop) read(t testing.TB) state {
	t.Helper()
	ctx := redistest.Soon(t)
	st := state{map[string]string{}, map[string]map[string]string{}, map[string]map[string]float64{}, map[string]largeBody{}, "", time.Now()}
	for name, wanted := range wantedTypes {
		kind, err := s.client.Type(ctx, s.key(name)).Result()
		redistest.Must(t, err)
		st.types[name] = kind
		if kind != wanted {
			continue
		}
		switch kind {
		case "hash":
			st.hashes[name], err = s.client.HGetAll(ctx, s.key(name)).Result()
		case "zset":
			var list []redis.Z
			list, err = s.client.ZRangeWithScores(ctx, s.key(name), 0, -1).Result()
			st.zsets[name] = map[string]float64{}
			for _, z := range list {
				st.zsets[name][fmt.Sprint(z.Member)] = z.Score
			}
		case "string":
			st.seq, err = s.client.Get(ctx, s.key(name)).Result()
		}
		redistest.Must(t, err)
	}
	names := slices.Collect(maps.Keys(st.hashes["bodies"]))
	for _, body := range st.hashes["entries"] {
		if parts := reference.FindStringSubmatch(body); parts != nil {
			names = append(names, parts[3])
		}
	}
	for _, name := range names {
		text, err := s.client.Get(ctx, s.key("body:"+name)).Result()
		st.large[name] = largeBody{text, err == nil, s.client.PTTL(ctx, s.key("body:"+name)).Val() > 0}
	}
	return st
}

// entries returns the bodies of all events. A lost body counts as erased.
func (st state) entries() map[string]string {
	all := maps.Clone(st.hashes["entries"])
	for id, body := range all {
		switch parts := reference.FindStringSubmatch(body); {
		case parts == nil || st.large[parts[3]].there:
		case parts[1] != "":
			all[id] = parts[1]
		default:
			all[id] = "!" + digest[1:] // without an event
		}
	}
	return all
}

// bodies returns the bodies of the unpublished events.
func (st state) bodies() map[string]string {
	live := map[string]string{}
	for id, body := range st.entries() {
		if !strings.HasPrefix(body, "=") {
			live[id] = body
		}
	}
	return live
}

func (st state) sound(names ...string) bool {
	for _, name := range names {
		if kind := st.types[name]; kind != "none" && kind != wantedTypes[name] {
			return false
		}
	}
	return true
}

func (st state) there(name string) bool { return st.types[name] != "none" }

// age returns the age of the start of a generation, and whether it is a time in the past.
func (st state) age(name string) (age time.Duration, ok bool) {
	text := st.hashes[name]["start"]
	if meta := st.hashes[name]["id"]; len(meta) > 40 {
		text = meta[13:26]
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms == 0 {
		return 0, false
	}
	age = st.now.Sub(time.UnixMilli(ms))
	return age, age > -time.Minute
}

var count = regexp.MustCompile(`^[0-9]{1,9}$`)

// disagreements returns the findings that Check must report, derived from the rules of docs/repair.md only.
func (st state) disagreements() []string {
	var list []string
	say := func(kind string, where ...string) { list = append(list, kind+" "+strings.Join(where, "/")) }
	for name := range wantedTypes {
		if !st.sound(name) {
			say("type", name)
		}
	}
	if _, err := strconv.ParseInt(st.seq, 10, 64); st.seq != "" && (err != nil || len(st.seq) > 18) {
		say("type", "seq")
	}
	for digest := range st.hashes["broken"] {
		say("broken", "broken", strings.ToLower(hexOf(digest)))
	}
	for _, name := range []string{"results", "results:b"} {
		if age, ok := st.age(name); st.there(name) && st.sound(name) && !ok {
			say("value", name, "start")
		} else if ok && age >= 2*retention {
			say("stale", name)
		}
	}
	if st.sound("inbox:a", "inbox:b") {
		st.inbox(say)
	}
	if st.sound(outboxKeys...) {
		st.events(say)
	}
	slices.Sort(list)
	return list
}

func (st state) inbox(say func(string, ...string)) {
	a, hasA, hasB := st.hashes["inbox:a"], st.there("inbox:a"), st.there("inbox:b")
	age, ok := st.age("inbox:a")
	meta := a["id"]
	flag := meta != "" && meta[26] == '1'
	alone := len(a) == 1 && strings.HasPrefix(meta[min(13, len(meta)):], "0000000000000") && !hasB
	if ok && age >= 2*retention || alone && !st.there("entries") && !st.there("due") && !st.there("decided") {
		say("stale", "inbox:a")
		if hasB {
			say("stale", "inbox:b")
		}
		return
	}
	if hasA && (!ok && !alone || flag && !hasB) {
		say("value", "inbox:a", "id")
	}
	switch {
	case hasB && ok && age >= retention:
		say("stale", "inbox:b")
	case hasB && !flag:
		say("unlinked", "inbox:b")
	}
}

// outboxKeys are the keys of an outbox. If one of them has another type, Check reports no events.
var outboxKeys = []string{"inbox:a", "entries", "pending", "parked", "sent", "headers", "lanes", "bodies"}

func (st state) in(index, id string) bool {
	_, ok := st.zsets[index][id]
	return ok
}

func (st state) events(say func(string, ...string)) {
	entries, bodies := st.entries(), st.bodies()
	st.lanes(say)
	st.largeBodies(say)
	for _, name := range []string{"pending", "parked", "sent"} {
		for id, score := range st.zsets[name] {
			_, known := entries[id]
			_, live := bodies[id]
			switch {
			case !known:
				say("orphan", name, id)
				continue
			case math.IsInf(score, 0):
				say("value", name, id)
			}
			behind := live && !st.parked(id) && st.head(id) != id
			if live != (name != "sent") || name == "pending" && live && (st.parked(id) || behind) {
				say("misplaced", name, id)
			}
		}
	}
	for id, body := range entries {
		_, live := bodies[id]
		switch {
		case !live && !st.in("sent", id):
			say("unindexed", "sent", id)
		case live && strings.HasPrefix(body, "!") && !st.in("parked", id):
			say("unindexed", "parked", id)
		case live && !st.parked(id) && !st.in("pending", id) && st.head(id) == id:
			say("unindexed", "pending", id)
		}
	}
	for _, name := range []string{"attempts", "errors", "routes"} {
		for id, value := range st.hashes[name] {
			_, live := bodies[id]
			if !live {
				say("leftover", name, id)
			} else if name == "attempts" && !count.MatchString(value) {
				say("value", name, id)
			}
		}
	}
	if st.sound("counts", "parked:by", "errors") {
		st.counts(say)
	}
}

// parked reports whether an unpublished event belongs to parked.
func (st state) parked(id string) bool {
	return st.in("parked", id) || strings.HasPrefix(st.entries()[id], "!")
}

func (st state) largeBodies(say func(string, ...string)) {
	named := map[string]bool{}
	for id, body := range st.hashes["entries"] {
		parts := reference.FindStringSubmatch(body)
		if parts == nil {
			continue
		}
		name := parts[3]
		named[name+" "+id] = true
		switch large := st.large[name]; {
		case !large.there:
			say("lost", "entries", id)
			continue
		case large.expires:
			say("value", "body", id)
		}
		if st.hashes["bodies"][name] != id {
			say("unlinked", "bodies", name)
		}
	}
	for name, id := range st.hashes["bodies"] {
		if !named[name+" "+id] {
			say("orphan", "bodies", name)
		}
	}
}

var headerForm, memberForm = regexp.MustCompile(`(?s)^[0-9]{16}.`), regexp.MustCompile("(?s)^([^\x00]+)\x00([0-9]{16})\x00(.+)$")

func memberOf(id, header string) string { return header[16:] + "\x00" + header[:16] + "\x00" + id }

func (st state) lanes(say func(string, ...string)) {
	live := st.bodies()
	for id, header := range st.hashes["headers"] {
		if _, ok := live[id]; !ok {
			say("leftover", "headers", id)
		} else if !headerForm.MatchString(header) {
			say("value", "headers", id)
		} else if !st.in("lanes", memberOf(id, header)) {
			say("unindexed", "lanes", id)
		}
	}
	for member, score := range st.zsets["lanes"] {
		id, ok := st.laneMember(member)
		switch _, known := st.hashes["headers"][id]; {
		case !ok:
			say("orphan", "lanes", id)
		case score != 0:
			say("value", "lanes", id)
		case !known:
			say("unlinked", "headers", id)
		}
	}
}

// laneMember returns the event of a lane's member, and whether it belongs there.
func (st state) laneMember(member string) (id string, ok bool) {
	parts := memberForm.FindStringSubmatch(member)
	if parts == nil {
		return member, false
	}
	_, live := st.bodies()[parts[3]]
	header, known := st.hashes["headers"][parts[3]]
	return parts[3], live && (!known || header == parts[2]+parts[1])
}

// head returns the next event of an event's lane, or the event itself if it has no lane.
func (st state) head(id string) string {
	header := st.hashes["headers"][id]
	if !headerForm.MatchString(header) {
		return id
	}
	for _, member := range slices.Sorted(maps.Keys(st.zsets["lanes"])) {
		if of, ok := st.laneMember(member); ok && strings.HasPrefix(member, header[16:]+"\x00") {
			return of
		}
	}
	return id
}

// counts returns the counts that do not match the bodies.
func (st state) counts(say func(string, ...string)) {
	gauges, by := map[string]int{"bytes": 0, "parked_bytes": 0}, map[string]int{}
	for id, body := range st.bodies() {
		size := len(body)
		if parts := reference.FindStringSubmatch(body); parts != nil {
			size, _ = strconv.Atoi(parts[2])
			body = st.large[parts[3]].text
		}
		if !st.parked(id) {
			gauges["bytes"] += size
			continue
		}
		gauges["parked_bytes"] += size
		var event struct{ Destination, Type string }
		_ = json.Unmarshal([]byte(strings.TrimPrefix(body, "+")), &event)
		class := "-"
		if words := strings.Fields(st.hashes["errors"][id]); len(words) > 2 {
			class = words[2]
		}
		by["d:"+event.Destination]++
		by["t:"+event.Type]++
		by["c:"+class]++
	}
	const idle, holds = 1 << 50, 1 << 51
	bytes, _ := strconv.ParseUint(cmp.Or(st.hashes["counts"]["bytes"], "0"), 10, 63)
	gauges["bytes"] += int(bytes & idle)
	if len(by) > 0 {
		gauges["bytes"] += holds
	}
	for field, n := range gauges {
		if cmp.Or(st.hashes["counts"][field], "0") != strconv.Itoa(n) {
			say("value", "counts", field)
		}
	}
	for field, n := range by {
		if st.hashes["parked:by"][field] != strconv.Itoa(n) {
			say("value", "parked:by", field)
		}
	}
	for field := range st.hashes["parked:by"] {
		if by[field] == 0 {
			say("value", "parked:by", field)
		}
	}
}
