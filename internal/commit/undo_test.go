package commit

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/slot"
)

// ordered returns the ith transaction for each script, with the commands given. Each key is that of the command's place.
func ordered(w *twins, i int, commands ...string) (both [2][]*Commit) {
	d := draw{tag: "{" + slot.Text(0) + "}"}
	for n := range both {
		c := &Commit{
			Shard: w.shards.Shard(0), Digest: fmt.Sprintf("digest%010d", i), Token: fmt.Sprintf("token%05d", i), NotAfter: time.Now().Add(time.Hour),
		}
		for place, words := range commands {
			key := d.tag + strconv.Itoa(place)
			c.Keys = append(c.Keys, key)
			c.Commands = append(c.Commands, d.command(strings.Fields(words), key))
		}
		both[n] = []*Commit{c}
	}
	return both
}

// TestUndoRestoresEachCounter sends transactions that fail after they have changed a counter.
func TestUndoRestoresEachCounter(t *testing.T) {
	t.Parallel()
	w := newTwins(t)
	for _, value := range []string{"", "7", "-7", "999999999999998", "-999999999999998", "1000000000000000", "9007199254740993", "-9007199254740993", "9223372036854775800"} {
		for _, change := range []string{"INCR k", "DECR k", "INCRBY k 5", "DECRBY k 5", "INCRBY k -5", "INCRBY k 1000000000000001", "DECRBY k 9007199254740993"} {
			both := ordered(w, 1, change, "INCR k")
			keys := both[0][0].Keys
			w.do(t.Context(), "FLUSHDB")
			w.do(t.Context(), "HSET", w.shards.Shard(0).Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
			if value != "" {
				w.do(t.Context(), "SET", keys[0], value)
			}
			w.do(t.Context(), "SET", keys[1], "text")
			w.flush(t.Context())
			if difference := w.differ(t, both); difference != "" {
				t.Errorf("%s of %q: %s", change, value, difference)
			}
			for n, client := range w.clients {
				if after := client.Get(t.Context(), keys[0]).Val(); after != value || both[n][0].Outcome.State != Failed {
					t.Errorf("%s of %q: %s, and the counter is %q", change, value, both[n][0].Outcome.State, after)
				}
			}
		}
	}
}

// TestUndoKeepsEachFieldAndItsExpiry sends transactions that fail after an HSET of three fields, one of which expires if the server
// can do that: since Redis 7.4 and Valkey 9.
func TestUndoKeepsEachFieldAndItsExpiry(t *testing.T) {
	t.Parallel()
	w := newTwins(t)
	for i, field := range []string{"a", "b", "c"} {
		w.do(t.Context(), "FLUSHDB")
		w.flush(t.Context())
		if difference := w.differ(t, ordered(w, 0, "HSET k a 1 b 2 c 3 other 4", "SET k word", "SET k word")); difference != "" {
			t.Fatal(difference)
		}
		both, expires := ordered(w, i+1, "HSET k a x b x c x", "SET k other", "INCR k"), true
		for n, client := range w.clients {
			expires = client.HPExpire(t.Context(), both[n][0].Keys[0], time.Hour, field).Err() == nil
		}
		if difference := w.differ(t, both); difference != "" {
			t.Error(field, difference)
		}
		for n, client := range w.clients {
			if state := both[n][0].Outcome.State; state == Committed {
				t.Errorf("%s: %s", field, state)
			}
			if left := client.HPTTL(t.Context(), both[n][0].Keys[0], field).Val(); expires && (len(left) != 1 || left[0] <= 0) {
				t.Errorf("the field %s expires in %v ms", field, left)
			}
		}
	}
}

// TestUndoKeepsTheExpiryOfAString sends transactions that fail after they have replaced or changed a string that expires, and one that
// does not.
func TestUndoKeepsTheExpiryOfAString(t *testing.T) {
	t.Parallel()
	w := newTwins(t)
	for _, change := range []string{"SET k x", "SET k x EX 7", "GETSET k x", "APPEND k x", "INCR k"} {
		for _, expires := range []time.Duration{-1, 1000 * time.Second} {
			both := ordered(w, 1, change, "INCR k")
			keys := both[0][0].Keys
			w.do(t.Context(), "FLUSHDB")
			w.do(t.Context(), "HSET", w.shards.Shard(0).Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
			w.do(t.Context(), "SET", keys[0], "7")
			if expires > 0 {
				w.do(t.Context(), "PEXPIRE", keys[0], expires.Milliseconds())
			}
			w.do(t.Context(), "SET", keys[1], "text")
			w.flush(t.Context())
			if difference := w.differ(t, both); difference != "" {
				t.Errorf("%s: %s", change, difference)
			}
			for n, client := range w.clients {
				left := client.PTTL(t.Context(), keys[0]).Val()
				if both[n][0].Outcome.State != Failed || left < 0 != (expires < 0) || left > expires || left > 0 && left < expires-100*time.Second {
					t.Errorf("%s: %s, and the key expires in %v, want %v", change, both[n][0].Outcome.State, left, expires)
				}
			}
		}
	}
}

// TestCompiledScriptLeavesLargeOldValuesToTheGeneralOne changes values that are as large as an undo may be, and larger ones.
func TestCompiledScriptLeavesLargeOldValuesToTheGeneralOne(t *testing.T) {
	t.Parallel()
	w := newTwins(t)
	home := w.shards.Shard(0)
	for _, change := range []string{"HSET k a x", "HSET k b x a x c x", "SET k x", "APPEND k x"} {
		for size, handled := range map[int]bool{20: true, 40: true, 41: false} {
			both := ordered(w, 1, change, "SET k x")
			w.do(t.Context(), "FLUSHDB")
			w.do(t.Context(), "HSET", home.Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
			if value := strings.Repeat("1", size); strings.HasPrefix(change, "HSET") {
				w.do(t.Context(), "HSET", both[0][0].Keys[0], "a", value)
			} else {
				w.do(t.Context(), "SET", both[0][0].Keys[0], value)
			}
			w.flush(t.Context())
			if difference := w.differ(t, both); difference != "" {
				t.Errorf("%s after %d bytes: %s", change, size, difference)
			}
			if got := both[1][0].compiled != nil; got != handled {
				t.Errorf("%s after %d bytes: handled by the compiled script: %t", change, size, got)
			}
		}
	}
}

// TestUndoLeavesAnEventThatWasThereBefore sends a transaction whose first event cannot be added. The outbox already has its second one.
func TestUndoLeavesAnEventThatWasThereBefore(t *testing.T) {
	t.Parallel()
	w, d := newTwins(t), draw{tag: "{" + slot.Text(0) + "}"}
	home := w.shards.Shard(0)
	w.do(t.Context(), "HSET", home.Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
	w.do(t.Context(), "HSET", home.Key("entries"), "event 1 of 0", "{}")
	w.do(t.Context(), "SET", home.Key("pending"), "text")
	w.flush(t.Context())
	var both [2][]*Commit
	for n := range both {
		both[n] = []*Commit{d.plain(home, kind{events: 2}, 0)}
	}
	if difference := w.differ(t, both); difference != "" {
		t.Error(difference)
	}
	for n, client := range w.clients {
		if bodies := client.HGetAll(t.Context(), home.Key("entries")).Val(); len(bodies) != 1 || bodies["event 1 of 0"] != "{}" || both[n][0].Outcome.State != Failed {
			t.Errorf("%s, and the outbox has %q", both[n][0].Outcome.State, bodies)
		}
	}
}
