package sqltx

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

const (
	examining = "SELECT k.ordering_key"
	leasingID = "o.id IN ("
	unkeyed   = "o.ordering_key IS NULL"
)

// firstRows answers like a table whose key number i has one row, with id i. A row is due until it is leased.
type firstRows struct {
	due  []bool
	free func() [][]any // the rows without a key
	held []string       // keys that others hold
}

func newFirstRows(n int, due bool) *firstRows { return &firstRows{due: slices.Repeat([]bool{due}, n)} }

func keyNumber(i int) string { return fmt.Sprintf("key%05d", i) }

func (f *firstRows) answer(statement string, args []any) (out [][]any, err error) {
	switch {
	case strings.Contains(statement, examining):
		for i, due := range f.due {
			if len(out) == int(args[1].(int64)) {
				break
			}
			if keyNumber(i) > args[0].(string) {
				var id any
				if due {
					id = int64(i)
				}
				out = append(out, []any{keyNumber(i), id})
			}
		}
	case strings.Contains(statement, contesting):
		for _, key := range f.held {
			out = append(out, []any{key})
		}
	case strings.Contains(statement, leasingID):
		for _, id := range ids(args[:len(args)-3]) {
			f.due[id] = false
			out = append(out, rows(int(id), 1, 1, keyNumber(int(id)))...)
		}
	case strings.Contains(statement, unkeyed) && f.free != nil:
		return f.free(), nil
	}
	return out, nil
}

// examined returns the arguments of the statements that look for first rows, and when they were received.
func examined(db *answers) (list []string) {
	for _, h := range db.of(examining) {
		list = append(list, fmt.Sprintf("%v %q %d", h.at, h.args[0], h.args[1]))
	}
	return list
}

func wantExamined(t *testing.T, db *answers, want ...string) {
	t.Helper()
	if got := examined(db); !slices.Equal(got, want) {
		t.Errorf("examined\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestClaimExaminesTheKeysBehindThoseOfTheLastOne also tests that keys before them are examined again if something has happened
// since.
func TestClaimExaminesTheKeysBehindThoseOfTheLastOne(t *testing.T) {
	t.Parallel()
	table := newFirstRows(6, true)
	db := &answers{answer: table.answer}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 2}, func(events <-chan *message.RawMessage, p *OutboxPublisher, _ func(), _ *rig.Lines) {
		synctest.Wait() // four events are held, which is the maximum
		wantExamined(t, db, `0s "" 2`, `0s "key00001" 2`)
		table.due[0], table.due[5] = true, false
		p.Wake()
		synctest.Wait()
		var order []string
		for range 6 {
			msg := <-events
			order = append(order, msg.ID())
			msg.Ack()
		}
		want := []string{"0", "1", "2", "3", "4", "0"}
		if !slices.Equal(order, want) {
			t.Errorf("handed out %v, want %v", order, want)
		}
		time.Sleep(100 * time.Millisecond)
		if looks := examined(db); !slices.Equal(looks[2:4], []string{`0s "key00003" 2`, `0s "key00005" 2`}) {
			t.Errorf("examined\n%s", strings.Join(looks, "\n"))
		}
		last := len(db.of(examining))
		time.Sleep(500 * time.Millisecond)
		if later := db.times(examining)[last:]; len(later) > 3 || later[0] != 500*time.Millisecond {
			t.Errorf("examined all again at %v, want it once, at the next poll", later)
		}
	})
}

func TestClaimExaminesTwiceAsManyKeysIfNoneWasDue(t *testing.T) {
	t.Parallel()
	db := &answers{answer: newFirstRows(3500, false).answer}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 100}, func(_ <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		synctest.Wait()
		wantExamined(t, db, `0s "" 100`, `0s "key00099" 200`, `0s "key00299" 400`, `0s "key00699" 800`, `0s "key01499" 1000`, `0s "key02499" 1000`, `0s "key03499" 1000`)
	})
}

func TestEventsWithAndWithoutKeyTakeTurns(t *testing.T) {
	t.Parallel()
	table, next := newFirstRows(100, true), 1000
	table.free = func() [][]any {
		next += 2
		return rows(next, 2, 1)
	}
	db := &answers{answer: table.answer}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 2}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		keyed := 0
		for range 40 {
			msg := <-events
			if len(msg.ID()) < 4 {
				keyed++
			}
			msg.Ack()
			synctest.Wait()
		}
		if keyed < 10 || keyed > 30 {
			t.Errorf("%d of 40 events have a key, want about half", keyed)
		}
	})
}

func TestClaimLeasesNoKeyThatAnotherLeaseHolds(t *testing.T) {
	t.Parallel()
	for name, held := range map[string][]string{"one of two": {keyNumber(0)}, "both": {keyNumber(0), keyNumber(1)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := newFirstRows(2, true)
			table.held = held
			db := &answers{answer: table.answer}
			inBubble(t, db, OutboxPublisherConfig{BatchSize: 4}, func(_ <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
				synctest.Wait()
				leases := db.of(leasingID)
				if len(leases) != 2-len(held) || len(leases) > 0 && leases[0].args[0] != int64(1) {
					t.Errorf("leased with %v", leases)
				}
				if len(db.of(returning)) > 0 {
					t.Error("rows are given back")
				}
			})
		})
	}
}

func TestClaimSharesTheRoomAmongTheKeysThatItClaimed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size, heads int
		found       [][]any
		asked       string
		want        []int64
	}{
		"not evenly":           {5, 2, [][]any{follower(3, 0, "a", false, false), follower(5, 0, "a", false, false), follower(4, 0, "b", false, false), follower(6, 0, "b", false, false)}, "[a 1 2 b 2 2]", []int64{3, 4, 5}},
		"less than one a key":  {4, 3, [][]any{follower(4, 0, "a", false, false)}, "[a 1 1]", []int64{4}},
		"exactly one for each": {4, 2, [][]any{follower(3, 0, "a", false, false), follower(4, 0, "b", false, false)}, "[a 1 1 b 2 1]", []int64{3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &answers{answer: byPart(map[string][][]any{claiming: rows(1, c.heads, 1, "a", "b", "c"), following: c.found})}
			inBubble(t, db, OutboxPublisherConfig{BatchSize: c.size}, func(_ <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
				synctest.Wait()
				if found := db.of(following); len(found) != 1 || fmt.Sprint(found[0].args) != c.asked {
					t.Errorf("looked for %v, want %s", found, c.asked)
				}
				if leases := db.of(leasing); len(leases) != 1 || !slices.Equal(ids(leases[0].args[2:]), c.want) {
					t.Errorf("leased %v, want %v", leases, c.want)
				}
			})
		})
	}
}

// TestKeyThatIsClaimedAgainHoldsNoEventsOfItsOldLease tests that events behind the first one of an ended lease are given back
// when this process claims their key again.
func TestKeyThatIsClaimedAgainHoldsNoEventsOfItsOldLease(t *testing.T) {
	t.Parallel()
	claims, looks := 0, 0
	db := &answers{}
	db.answer = func(statement string, args []any) ([][]any, error) {
		switch {
		case strings.Contains(statement, leasing):
			return make([][]any, len(args)-2), nil
		case strings.Contains(statement, claiming):
			if claims++; claims <= 2 { // the second time as if the lease had ended
				return rows(1, 1, int64(claims), "a"), nil
			}
		case strings.Contains(statement, following):
			if looks++; looks <= 2 {
				return [][]any{follower(2, 0, "a", false, false)}, nil
			}
		}
		return nil, nil
	}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 10}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		old := <-events
		time.Sleep(time.Second) // the next poll
		old.Ack()
		for range 2 {
			(<-events).Ack()
		}
		synctest.Wait()
		settled := len(db.of(renewing))
		time.Sleep(time.Minute)
		if n := len(db.of(renewing)); n != settled {
			t.Errorf("%d renewals although no event is claimed", n-settled)
		}
	})
}
