package repair_test

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/repair"
)

func hexOf(s string) string { return hex.EncodeToString([]byte(s)) }

// TestFixRepairsRandomCorruptionsAsTheRulesSay corrupts 100 shards of a server and of a cluster about 1,000 times. Check must
// report what the rules say and change nothing. Fix must repair that and lose no body. After it, Check must report nothing.
func TestFixRepairsRandomCorruptionsAsTheRulesSay(t *testing.T) {
	t.Parallel()
	redistest.Servers(t, func(t *testing.T, client redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) {
			s := newShop(t, client)
			s.furnish(t)
			for _, command := range largeEvent {
				s.damage(t, command)
			}
			for range rapid.IntRange(5, 15).Draw(rt, "corruptions") {
				command := corruption(rt, s)
				if err := client.Do(redistest.Soon(t), command...).Err(); err != nil && !strings.Contains(err.Error(), "WRONGTYPE") {
					rt.Fatalf("%v: %v", command, err)
				}
			}
			healed(rt, t, s)
			for _, name := range slices.Sorted(maps.Keys(wantedTypes)) {
				client.Del(redistest.Soon(t), s.key(name))
			}
		})
	})
}

// healed checks a damaged shard, fixes it, and checks it again, one id at a time. It does not work on miniredis, whose ZSCAN skips
// members if others are removed meanwhile.
func healed(rt rapid.TB, t testing.TB, s *shop) { //nolint:thelper // rapid has a TB of its own
	rt.Helper()
	before := s.read(t)
	want, w := before.disagreements(), newWorker(t, s.tr, repair.Config{Step: 1})
	if got := named(t, w.Check(redistest.Soon(t))); !slices.Equal(got, want) {
		rt.Fatalf("Check named\n%s\nthe rules\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if again := s.read(t); !equal(again, before) {
		rt.Fatalf("a dry run has changed\n%v\nto\n%v", before, again)
	}
	if stats := w.Stats(); stats.Steps != 0 || stats.Shards != 0 || len(stats.Reported) > 0 {
		rt.Fatalf("a dry run counts: %+v", stats)
	}
	for f, err := range w.Fix(redistest.Soon(t)) {
		redistest.Must(t, err)
		if f.Fixed != f.Kind.Fixable() {
			rt.Fatalf("%s: fixed %t", f, f.Fixed)
		}
	}
	after := s.read(t)
	if got := named(t, w.Check(redistest.Soon(t))); !slices.Equal(got, left(want)) || !slices.Equal(got, after.disagreements()) {
		rt.Fatalf("after a fix of\n%s\nCheck named\n%s\nthe rules\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"), after.disagreements())
	}
	entries := before.hashes["entries"]
	if before.sound(outboxKeys...) {
		entries = before.entries()
	}
	if !maps.Equal(entries, after.hashes["entries"]) {
		rt.Fatalf("entries were\n%v\nand are\n%v", entries, after.hashes["entries"])
	}
	for name, large := range before.large {
		if now := s.client.Exists(redistest.Soon(t), s.key("body:"+name)).Val() == 1; before.sound(outboxKeys...) && now != after.large[name].there {
			rt.Fatalf("the large body %s was there: %t, is there: %t", name, large.there, now)
		}
	}
	for name, kind := range before.types {
		if kind != wantedTypes[name] && kind != "none" && after.types[name] != kind {
			rt.Fatalf("%s was a %s and is a %s", name, kind, after.types[name])
		}
	}
	if !before.sound(outboxKeys...) {
		for name, was := range before.zsets {
			if !maps.Equal(was, after.zsets[name]) {
				rt.Fatalf("%s was changed beside a key of another type: %v, %v", name, was, after.zsets[name])
			}
		}
		return
	}
	for id := range before.bodies() {
		parked, pending := before.parked(id), after.in("pending", id)
		if parked != after.in("parked", id) || pending != (!parked && after.head(id) == id) {
			rt.Fatalf("%s: parked before %t, parked %t, pending %t, head of its lane %s", id, parked, after.in("parked", id), pending, after.head(id))
		}
	}
}

func equal(a, b state) bool {
	return maps.Equal(a.types, b.types) && a.seq == b.seq && maps.Equal(a.large, b.large) &&
		maps.EqualFunc(a.hashes, b.hashes, maps.Equal[map[string]string, map[string]string]) &&
		maps.EqualFunc(a.zsets, b.zsets, maps.Equal[map[string]float64, map[string]float64])
}

// corruption returns a random command that damages a shard. The server may reject it, because an earlier one has changed a type.
func corruption(rt *rapid.T, s *shop) []any {
	one := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(rt, label) }
	id := one("id", "leased", "pending", "parked", "sent", "first", "second", "third", "big", "x", "y")
	detail := one("detail", "attempts", "errors", "routes")
	index := one("index", "pending", "parked", "sent")
	inbox, results := one("generation", "inbox:a", "inbox:b"), one("generation of results", "results", "results:b")
	begun := generation{time.Duration(rapid.IntRange(-1, 4).Draw(rt, "retentions"))*retention + time.Hour, rapid.Bool().Draw(rt, "older")}
	key := s.key
	switch rapid.IntRange(0, 26).Draw(rt, "corruption") {
	case 0:
		return []any{"HDEL", key("entries"), id}
	case 1:
		return []any{"HSET", key("entries"), id, body(id)}
	case 2:
		return []any{"HSET", key("entries"), id, "=0123456789012345678901234567890123456789"}
	case 3, 4:
		return []any{"ZADD", key(index), one("score", "1", "1e12", "inf", "-inf"), id}
	case 5, 6:
		return []any{"ZREM", key(index), id}
	case 7:
		return []any{"HSET", key(detail), id, one("value", "1", "77", "many", "-1", "99999999999999999999")}
	case 8:
		return []any{"HDEL", key(detail), id}
	case 9:
		return []any{"DEL", key(one("deleted", "entries", "pending", "parked", "sent", "inbox:a", "inbox:b", "results", "headers", "lanes", "counts", "parked:by"))}
	case 10:
		return []any{"HSET", key(inbox), "id", s.meta(begun)}
	case 11:
		junk := one("junk", "1e99         ", "soon         ", "0000000000000")
		return []any{"HSET", key(inbox), "id", s.meta(begun)[:13] + junk + s.meta(begun)[26:]}
	case 12:
		return []any{"HDEL", key("inbox:a"), "id"}
	case 13:
		return []any{"HSET", key("headers"), id, one("header", "0000000000000002lane", "0000000000000099lane", "0000000000000001other", "lane", "")}
	case 14:
		return []any{"HDEL", key("headers"), id}
	case 15:
		return []any{"ZADD", key("lanes"), 0, one("member", "lane\x000000000000000000\x00"+id, "other\x000000000000000007\x00"+id, "lane", "lane\x00")}
	case 16:
		return []any{"ZREMRANGEBYRANK", key("lanes"), rapid.IntRange(0, 2).Draw(rt, "rank"), one("rank to", "0", "1", "2")}
	case 17:
		return []any{"HSET", key("counts"), one("size", "bytes", "parked_bytes"), one("number", "0", "7", "-3", "many", "07", "1125899906842631", "2251799813685255")}
	case 18:
		return []any{"HSET", key("parked:by"), one("field", "d:", "t:t", "t:x", "c:-", "c:refused"), one("n", "0", "1", "5")}
	case 19:
		return []any{"HSET", key("entries"), id, "!0123456789012345678901234567890123456789"}
	case 20:
		return []any{"HSET", key("broken"), "0123456789abcdef", "HSET k: WRONGTYPE"}
	case 21:
		return []any{"HSET", key(results), "start", time.Now().Add(-begun.age).UnixMilli()}
	case 23:
		return []any{"DEL", key(one("large", "body:n1", "bodies"))}
	case 24:
		return []any{"PEXPIRE", key("body:n1"), 1_000_000}
	case 25:
		return []any{"HSET", key("bodies"), one("name", "n1", "n2"), id}
	case 26:
		return []any{"HSET", key("entries"), id, one("reference", "~9 ", "+~9 ", digest+"~9 ") + "of " + id}
	case 22:
		return []any{"HSET", key(results), "start", one("junk", "1e99", "soon")}
	}
	if rapid.IntRange(0, 4).Draw(rt, "often") > 0 { // it hides other findings
		return []any{"SET", key("seq"), one("seq", "7", "x", "1.5")}
	}
	names := slices.Sorted(maps.Keys(wantedTypes))
	return []any{"SET", key(one("name", names...)), "v"}
}
