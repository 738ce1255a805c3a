package commit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
)

// position returns the position of the ith transaction of a batch.
func (d draw) position(i int) *Position {
	p := &Position{Field: fmt.Sprintf("orders/%d", i%2), Offset: fmt.Sprintf("%02d", 10+i), Owner: OwnerOf(7, "e 1")}
	if i > 1 && d.IntN(2) == 0 {
		p.After = fmt.Sprintf("%02d", 8+i)
	}
	switch d.IntN(40) {
	case 0:
		p.Field = "orders/0"
	case 1:
		p.Offset = d.one("05", "10", "11")
	case 2:
		p.Offset = "100"
	case 3:
		p.After = d.one("05", "09")
	case 4:
		p.Owner = OwnerOf(d.Int64N(2)*2+6, d.one("e 1", "other", ""))
	}
	return p
}

// record returns the record of a position before the transactions, or an empty text for none.
func (d draw) record() string {
	if d.IntN(4) == 0 {
		return ""
	}
	token := d.one("token00009", "token00000", "token00001")
	switch d.IntN(16) {
	case 0:
		return token + d.one("10", "11", "20") + OwnerOf(7, "e 1")
	case 1:
		return token + "09" + OwnerOf(8, "e 1")
	case 2:
		return token + "09" + OwnerOf(6, "e 1")
	case 3:
		return token + "09" + OwnerOf(7, d.one("", "other"))
	case 4:
		return token + "09!7 e 1"
	case 5:
		return token + OwnerOf(d.Int64N(3)+6, "")
	case 6:
		return d.one("token", token+"words", token+"09 x e 1", token+"009"+OwnerOf(7, "e 1"))
	default:
		return token + "09" + OwnerOf(7, "e 1")
	}
}

// TestRollbackFailureLeavesNoEventsBehindItsPosition sends batches of three transactions with one position. The first fails, and
// the user may not run one of the commands that take events back, or ZCARD, which their rollback does not need.
func TestRollbackFailureLeavesNoEventsBehindItsPosition(t *testing.T) {
	t.Parallel()
	w, d := newTwins(t), draw{rand.New(rand.NewPCG(1, 1)), "{" + slot.Text(0) + "}"}
	home := w.shards.Shard(0)
	for _, command := range []string{"zrem", "hdel", "zcard"} {
		w.do(t.Context(), "FLUSHDB")
		w.do(t.Context(), "ACL", "SETUSER", "user", "+@all", "-"+command)
		w.do(t.Context(), "HSET", home.Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
		w.do(t.Context(), "HSET", home.Key("counts"), "bytes", "0")
		w.do(t.Context(), "SET", d.tag+"k0", "word")
		w.flush(t.Context())
		var both [2][]*Commit
		for i := range 3 {
			key := fmt.Sprintf("%sk%d", d.tag, i)
			c := Commit{
				Shard: home, Digest: fmt.Sprintf("digest%010d", i), Token: fmt.Sprintf("token%05d", i), NotAfter: time.Now().Add(time.Hour),
				Position: &Position{Field: "orders/0", Offset: fmt.Sprintf("%02d", 10+i), Owner: OwnerOf(7, "e 1")},
				Events:   []shard.Event{{ID: fmt.Sprint("event", i), Body: []byte("{}")}},
				Keys:     []string{key}, Commands: []Command{d.command([]string{"INCR", "k"}, key)},
			}
			for n := range both {
				twin := c
				both[n] = append(both[n], &twin)
			}
		}
		if difference := w.differ(t, both); difference != "" {
			t.Error(command, difference)
		}
		want, behind := Broken, "event1"
		if command == "zcard" { // no part of an undo: the first is undone, and the others commit
			want, behind = Failed, "event0"
		}
		if state := both[0][0].Outcome.State; state != want {
			t.Errorf("%s: %s, want %s", command, state, want)
		}
		for n, client := range w.clients {
			ids := client.HKeys(t.Context(), home.Key("entries")).Val()
			ids = append(ids, client.ZRange(t.Context(), home.Key("pending"), 0, -1).Val()...)
			if slices.Contains(ids, behind) {
				t.Errorf("%s: %v are left by script %d", command, ids, n)
			}
		}
	}
}
