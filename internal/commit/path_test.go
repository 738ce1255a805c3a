package commit

import (
	"fmt"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// TestCompiledScriptHandlesEachPlan commits transactions of many plans. Nothing is in their way, so none may be left to the general
// script. The transactions 0 and 2 move a position that is stored, transaction 1 moves a new one.
func TestCompiledScriptHandlesEachPlan(t *testing.T) {
	t.Parallel()
	w, d := newTwins(t), draw{tag: "{" + slot.Text(0) + "}"}
	home := w.shards.Shard(0)
	for i := range 2 * 3 * 2 * 4 {
		k := kind{positioned: i%2 == 1, ack: Ack(i / 2 % 3), delay: time.Duration(i/6%2) * time.Minute, events: i / 12}
		for n := range 3 {
			w.do(t.Context(), "FLUSHDB")
			w.do(t.Context(), "HSET", home.Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
			stored := "token0000909" + OwnerOf(7, "e 1")
			w.do(t.Context(), "HSET", home.Key("positions"), "orders/0", stored, "orders/2", stored)
			d.stream(t.Context(), w)
			w.flush(t.Context())
			var both [2][]*Commit
			for j := range 2 * (n + 1) {
				both[j%2] = append(both[j%2], d.plain(home, k, j/2))
			}
			plan := fmt.Sprintf("%d of %s", n+1, both[0][0].describe())
			if difference := w.differ(t, both); difference != "" {
				t.Errorf("%s: %s", plan, difference)
			}
			for j, c := range both[1] {
				if c.compiled == nil || c.Outcome.State != Committed {
					t.Errorf("%s: transaction %d is %q, in a compiled script: %t", plan, j, c.Outcome.State, c.compiled != nil)
				}
			}
		}
	}
}

// plain returns the ith transaction of a kind. Its commands are always the same.
func (d draw) plain(home shard.Shard, k kind, i int) *Commit {
	c := &Commit{
		Shard: home, Digest: fmt.Sprintf("digest%010d", i), Token: fmt.Sprintf("token%05d", i), NotAfter: time.Now().Add(time.Hour), Delay: k.delay,
	}
	if k.positioned {
		c.Position = &Position{Field: fmt.Sprint("orders/", i), Offset: "10", Owner: OwnerOf(7, "e 1")}
		if i%2 == 0 {
			c.Position.After = "09"
		}
	}
	if k.ack != AckNone {
		c.Input = Input{Ack: k.ack, Stream: d.tag + "stream", Group: "g", Consumer: "c", Entry: fmt.Sprintf("%d-0", i+1)}
	}
	for e := range k.events {
		c.Events = append(c.Events, shard.Event{ID: fmt.Sprintf("event %d of %d", e, i), Body: []byte("{}")})
	}
	for n, words := range [][]any{{"SET", "", "v"}, {"HSET", "", "f", "v", "g", "w"}, {"INCR", ""}} {
		key := fmt.Sprintf("%sk%d-%d", d.tag, i, n)
		words[1] = key
		c.Keys = append(c.Keys, key)
		c.Commands = append(c.Commands, recorded(words))
	}
	return c
}

func TestEventsOfACompiledScriptAreDueAfterTheirDelay(t *testing.T) {
	t.Parallel()
	w := newTwins(t)
	home := w.shards.Shard(0)
	for _, delay := range []time.Duration{0, time.Minute} {
		for n := range 2 {
			w.do(t.Context(), "FLUSHDB")
			w.do(t.Context(), "HSET", home.Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
			w.flush(t.Context())
			both := emitting(home, n+1, delay, false)
			from := time.Now().Add(delay).UnixMilli()
			w.send(t.Context(), 1, both[1])
			until := time.Now().Add(delay).UnixMilli()
			for _, c := range both[1] {
				due := int64(w.clients[1].ZScore(t.Context(), home.Key("pending"), c.Events[0].ID).Val())
				if c.compiled == nil || due < from || due > until {
					t.Errorf("%d with a delay of %v: due %d ms after the first possible time of %d ms, in a compiled script: %t", n+1, delay, due-from, until-from, c.compiled != nil)
				}
			}
		}
	}
}

// TestAnEventThatOccursTwiceNeedsNoUndo commits as a user who may not undo the first of two equal events. Each pair of 12 events is
// equal once. If first and second are the same event, all differ.
func TestAnEventThatOccursTwiceNeedsNoUndo(t *testing.T) {
	t.Parallel()
	w, d := newTwins(t), draw{tag: "{" + slot.Text(0) + "}"}
	home := w.shards.Shard(0)
	w.do(t.Context(), "ACL", "SETUSER", "user", "+@all", "-zrem")
	const events = 12
	for first := range events {
		for second := first; second < events; second++ {
			for _, key := range []string{"entries", "pending", "counts", "inbox:a"} {
				w.do(t.Context(), "DEL", home.Key(key))
			}
			w.do(t.Context(), "HSET", home.Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
			w.flush(t.Context())
			var both [2][]*Commit
			for n := range both {
				c := d.plain(home, kind{events: events}, 0)
				c.Events[second].ID = c.Events[first].ID
				both[n] = []*Commit{c}
			}
			if difference := w.differ(t, both); difference != "" {
				t.Fatalf("events %d and %d: %s", first, second, difference)
			}
			c := both[1][0]
			if c.Outcome.State != Committed || (c.compiled != nil) != (first == second) {
				t.Errorf("events %d and %d: %s, in a compiled script: %t", first, second, c.Outcome.State, c.compiled != nil)
			}
		}
	}
}
