package repair_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/redistest"
)

// state is what a shard holds, read by plain commands.
type state struct {
	types  map[string]string
	hashes map[string]map[string]string
	zsets  map[string]map[string]float64
	seq    string
	now    time.Time
}

var wantedTypes = map[string]string{
	"void": "none", "inbox:a": "hash", "inbox:b": "hash", "results": "hash", "results:b": "hash", "entries": "hash",
	"pending": "zset", "parked": "zset", "sent": "zset", "attempts": "hash", "errors": "hash", "leases": "hash",
	"broken": "hash", "seq": "string", "repair": "hash", "due": "zset", "decided": "zset",
}

func (s *shop) read(t testing.TB) state {
	t.Helper()
	ctx := redistest.Soon(t)
	st := state{map[string]string{}, map[string]map[string]string{}, map[string]map[string]float64{}, "", time.Now()}
	for name, wanted := range wantedTypes {
		kind, err := s.client.Type(ctx, s.key(name)).Result()
		must(t, err)
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
		must(t, err)
	}
	return st
}

// bodies are the events that were not sent.
func (st state) bodies() map[string]string {
	live := map[string]string{}
	for id, body := range st.hashes["entries"] {
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

// age is how old the time in a generation's start is; ok: it is a time that has passed.
func (st state) age(name string) (age time.Duration, ok bool) {
	ms, err := strconv.ParseInt(st.hashes[name]["start"], 10, 64)
	if err != nil {
		return 0, false
	}
	age = st.now.Sub(time.UnixMilli(ms))
	return age, age > -time.Minute
}

var count = regexp.MustCompile(`^[0-9]{1,9}$`)

// disagreements is what Check has to name, from the rules of docs/repair.md and nothing else.
func (st state) disagreements() []string {
	var list []string
	say := func(kind string, where ...string) { list = append(list, kind+" "+strings.Join(where, "/")) }
	for name := range wantedTypes {
		if !st.sound(name) {
			say("type", name)
		}
	}
	if _, err := strconv.ParseInt(st.seq, 10, 64); st.seq != "" && err != nil {
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
	if st.sound("inbox:a", "entries", "pending", "parked", "sent") {
		st.events(say)
	}
	slices.Sort(list)
	return list
}

func (st state) inbox(say func(string, ...string)) {
	a, hasA, hasB := st.hashes["inbox:a"], st.there("inbox:a"), st.there("inbox:b")
	age, ok := st.age("inbox:a")
	_, flag := a["b"]
	_, id := a["id"]
	alone := len(a) == 1 && id
	if ok && age >= 2*retention || alone && !st.there("entries") && !st.there("due") && !st.there("decided") {
		say("stale", "inbox:a")
		if hasB {
			say("stale", "inbox:b")
		}
		return
	}
	if hasA && !id {
		say("value", "inbox:a", "id")
	}
	if hasA && !ok && !alone {
		say("value", "inbox:a", "start")
	}
	ageB, okB := st.age("inbox:b")
	switch {
	case !hasB && flag:
		say("value", "inbox:a", "b")
	case hasB && ok && age >= retention, hasB && !flag && okB && ageB >= 3*retention:
		say("stale", "inbox:b")
	case hasB && !flag:
		say("unlinked", "inbox:b")
	}
}

func (st state) events(say func(string, ...string)) {
	entries, bodies := st.hashes["entries"], st.bodies()
	for _, name := range []string{"pending", "parked", "sent"} {
		for id, score := range st.zsets[name] {
			_, known := entries[id]
			_, live := bodies[id]
			_, parked := st.zsets["parked"][id]
			switch {
			case !known:
				say("orphan", name, id)
				continue
			case math.IsInf(score, 0):
				say("value", name, id)
			}
			if live != (name != "sent") || live && parked && name == "pending" {
				say("misplaced", name, id)
			}
		}
	}
	for id := range entries {
		_, live := bodies[id]
		_, pending := st.zsets["pending"][id]
		_, parked := st.zsets["parked"][id]
		_, sent := st.zsets["sent"][id]
		if live && !pending && !parked {
			say("unindexed", "pending", id)
		} else if !live && !sent {
			say("unindexed", "sent", id)
		}
	}
	for _, name := range []string{"attempts", "errors", "leases"} {
		for id, value := range st.hashes[name] {
			_, live := bodies[id]
			_, parked := st.zsets["parked"][id]
			if !live || name == "leases" && parked {
				say("leftover", name, id)
			} else if name == "attempts" && !count.MatchString(value) {
				say("value", name, id)
			}
		}
	}
}
